"""Ranks of a log side by side: two to eight columns, aligned in time. What they show is in the address."""

from __future__ import annotations

import uuid

from django.http import HttpRequest, HttpResponse

from webui.pages.frame import page, show
from webui.pages.tasks import commands
from webui.pages.trials import trial


@page
def of_trial(request: HttpRequest, trial_id: int) -> HttpResponse:
    found = trial.find(trial_id)
    experiment = found.experiment
    context = {
        "task_id": found.task_id,
        "name": f"Trial {found.pk}",
        "at": f"/trials/{found.pk}",
        "log": f"/trials/{found.pk}/logs",
        "crumbs": [
            ("Experiments", "/experiments"),
            (f"{experiment.pk} {experiment.name}", f"/experiments/{experiment.pk}"),
            (f"Trial {found.pk}", f"/trials/{found.pk}"),
        ],
    }
    return show(request, "log_columns", context, room="Experiments")


@page
def of_command(request: HttpRequest, command_id: uuid.UUID) -> HttpResponse:
    found = commands.find(command_id)
    context = {
        "task_id": found.task_id,
        "name": f"{found.kind.label} {found.short_id}",
        "at": f"/commands/{found.pk}",
        "log": f"/commands/{found.pk}",
        "crumbs": [("Tasks", "/tasks"), (f"{found.kind.label} {found.short_id}", f"/commands/{found.pk}")],
    }
    return show(request, "log_columns", context, room=commands.ROOM)
