import django.contrib.postgres.fields
import django.db.models.deletion
from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ("metrics", "0001_initial"),
    ]

    operations = [
        migrations.CreateModel(
            name="Group",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("trial_id", models.BigIntegerField()),
                ("name", models.CharField(max_length=128)),
                ("reports", models.BigIntegerField(default=0)),
                ("last_step", models.BigIntegerField(null=True)),
            ],
            options={
                "ordering": ["name"],
                "constraints": [
                    models.UniqueConstraint(fields=("trial_id", "name"), name="metric_group_once_per_trial")
                ],
            },
        ),
        migrations.CreateModel(
            name="Chunk",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("first_step", models.BigIntegerField()),
                ("last_step", models.BigIntegerField()),
                ("reports", models.IntegerField()),
                ("archived", models.BooleanField(default=False)),
                (
                    "names",
                    django.contrib.postgres.fields.ArrayField(base_field=models.TextField(), size=None),
                ),
                (
                    "ends",
                    django.contrib.postgres.fields.ArrayField(base_field=models.IntegerField(), size=None),
                ),
                ("head", models.BinaryField()),
                ("data", models.BinaryField()),
                (
                    "group",
                    models.ForeignKey(
                        db_index=False,
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="chunks",
                        to="metrics.group",
                    ),
                ),
            ],
            options={
                "ordering": ["first_step"],
                "indexes": [models.Index(fields=["group", "last_step"], name="metrics_chunk_last_step")],
                "constraints": [
                    models.UniqueConstraint(
                        condition=models.Q(("archived", False)),
                        fields=("group", "first_step"),
                        name="one_live_metrics_chunk_per_step",
                    )
                ],
            },
        ),
        # columns are as small as they get, and parts of what is not compressed can be read alone
        migrations.RunSQL(
            "ALTER TABLE metrics_chunk ALTER COLUMN data SET STORAGE EXTERNAL", migrations.RunSQL.noop
        ),
    ]
