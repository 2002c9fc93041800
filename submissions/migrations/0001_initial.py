"""Contexts came from `experiments`, with their rows: the table is there already."""

from django.db import migrations, models


class Migration(migrations.Migration):
    initial = True
    dependencies = [("experiments", "0003_contexts_table_for_all_jobs")]

    operations = [
        migrations.SeparateDatabaseAndState(
            state_operations=[
                migrations.CreateModel(
                    name="Context",
                    fields=[
                        ("sha256", models.CharField(max_length=64, primary_key=True, serialize=False)),
                        ("archive", models.BinaryField()),
                        ("size_bytes", models.BigIntegerField()),
                        ("listing", models.JSONField()),
                    ],
                )
            ]
        )
    ]
