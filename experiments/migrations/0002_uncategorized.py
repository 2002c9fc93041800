"""Workspace 1 and project 1, "Uncategorized", exist from the start and stay (features.md 11.7)."""

from typing import Any

from django.db import migrations


def make(apps: Any, schema_editor: Any) -> None:
    workspace = apps.get_model("experiments", "Workspace").objects.create(name="Uncategorized", immutable=True)
    apps.get_model("experiments", "Project").objects.create(
        workspace=workspace, name="Uncategorized", key="UNCAT", immutable=True
    )


class Migration(migrations.Migration):
    dependencies = [("experiments", "0001_initial")]
    operations = [migrations.RunPython(make, migrations.RunPython.noop)]
