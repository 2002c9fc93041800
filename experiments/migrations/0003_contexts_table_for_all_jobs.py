"""The table of contexts is renamed first, so that the room `submissions` finds it as its own."""

from django.db import migrations


class Migration(migrations.Migration):
    dependencies = [("experiments", "0002_uncategorized")]

    operations = [
        migrations.SeparateDatabaseAndState(
            database_operations=[migrations.AlterModelTable("context", "submissions_context")]
        )
    ]
