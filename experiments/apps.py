from typing import Any

from django.apps import AppConfig
from django.apps import apps as installed
from django.db.models.signals import post_migrate


class ExperimentsConfig(AppConfig):
    name = "experiments"

    def ready(self) -> None:
        from experiments import places  # models, which are there by now
        from hosts import pool_access

        post_migrate.connect(_keep_uncategorized, sender=self)
        pool_access.workspaces_asked.connect(places.existing_workspaces, dispatch_uid="workspaces that exist")
        pool_access.workspace_of_job.connect(
            places.workspace_of_job, dispatch_uid="workspaces of experiments"
        )


def _keep_uncategorized(using: str, apps: Any = installed, **_: object) -> None:
    """Workspace 1 and project 1, "Uncategorized", exist whatever was deleted or flushed (features.md 11.7)."""
    try:
        workspaces = apps.get_model("experiments", "Workspace")
        projects = apps.get_model("experiments", "Project")
    except LookupError:  # migrated back to before they were
        return
    workspace, _created = workspaces.objects.using(using).get_or_create(
        pk=1, defaults={"name": "Uncategorized", "immutable": True}
    )
    projects.objects.using(using).get_or_create(
        pk=1,
        defaults={"workspace": workspace, "name": "Uncategorized", "key": "UNCAT", "immutable": True},
    )
