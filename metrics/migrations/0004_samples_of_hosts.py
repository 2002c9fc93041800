import django.contrib.postgres.fields
import django.db.models.deletion
from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("jobs", "0010_ends_of_ranks_and_log_policies"),
        ("metrics", "0003_reports_become_chunks"),
    ]

    operations = [
        migrations.CreateModel(
            name="SampleChunk",
            fields=[
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
                ("host_id", models.UUIDField()),
                ("host", models.CharField(max_length=128)),
                ("grain", models.SmallIntegerField(choices=[(0, "Shipped"), (1, "Points"), (2, "Minutes")])),
                ("first_time", models.FloatField()),
                ("last_time", models.FloatField()),
                ("points", models.IntegerField()),
                (
                    "columns",
                    django.contrib.postgres.fields.ArrayField(
                        base_field=models.CharField(max_length=128), size=None
                    ),
                ),
                ("data", models.BinaryField()),
                (
                    "task",
                    models.ForeignKey(
                        db_index=False,
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="sample_chunks",
                        to="jobs.task",
                    ),
                ),
            ],
            options={
                "ordering": ["first_time"],
                "indexes": [
                    models.Index(fields=["task", "first_time"], name="samples_of_task"),
                    models.Index(fields=["host_id", "first_time"], name="samples_of_host"),
                    models.Index(fields=["grain", "last_time"], name="samples_by_age"),
                ],
            },
        ),
    ]
