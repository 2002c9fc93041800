import django.db.models.deletion
from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("logs", "0004_pulse_and_stacks_of_ranks"),
    ]

    operations = [
        migrations.CreateModel(
            name="Retention",
            fields=[
                (
                    "task",
                    models.OneToOneField(
                        on_delete=django.db.models.deletion.CASCADE,
                        primary_key=True,
                        related_name="retention",
                        serialize=False,
                        to="jobs.task",
                    ),
                ),
                ("days", models.SmallIntegerField(null=True)),
                ("removed_line", models.BigIntegerField(default=0)),
                ("removed_at", models.DateTimeField(null=True)),
            ],
        ),
    ]
