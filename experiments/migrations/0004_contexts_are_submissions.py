"""An experiment points at the context where it now belongs; in the database nothing changes."""

import django.db.models.deletion
from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("experiments", "0003_contexts_table_for_all_jobs"),
        ("submissions", "0001_initial"),
    ]

    operations = [
        migrations.SeparateDatabaseAndState(
            state_operations=[
                migrations.AlterField(
                    model_name="experiment",
                    name="context",
                    field=models.ForeignKey(
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="experiments",
                        to="submissions.context",
                    ),
                ),
                migrations.DeleteModel(name="Context"),
            ]
        )
    ]
