import django.db.models.deletion
from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ("jobs", "0010_ends_of_ranks_and_log_policies"),
        ("metrics", "0004_samples_of_hosts"),
    ]

    operations = [
        migrations.CreateModel(
            name="TimingChunk",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("rank", models.IntegerField()),
                ("slot", models.BigIntegerField()),
                ("host", models.CharField(max_length=128)),
                ("first_step", models.BigIntegerField()),
                ("last_step", models.BigIntegerField()),
                ("last_time", models.FloatField()),
                ("frames", models.IntegerField()),
                ("data", models.BinaryField()),
                ("task", models.ForeignKey(db_index=False, on_delete=django.db.models.deletion.CASCADE, related_name="timing_chunks", to="jobs.task")),
            ],
            options={
                "ordering": ["rank", "slot"],
                "constraints": [models.UniqueConstraint(fields=("task", "rank", "slot"), name="timings_once_per_slot")],
            },
        ),
    ]
