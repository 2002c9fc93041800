"""Metrics as files of TensorBoard: `/api/v1/{trials,experiments}/<id>/tensorboard`, beside the dialect.

A zip archive of event files, made from what is stored, in bounded memory. A download that fails on the way breaks off:
it never looks complete.
"""

from __future__ import annotations

from django.http import HttpRequest, HttpResponseBase

from accounts.rights import Right
from experiments.models import Experiment, Trial
from jobs.models import Allocation
from shown.tensorboard_archive import archive
from webui.api.answers import Media
from webui.api.async_views import Principal, async_view
from webui.api.errors import Missing
from webui.api.log_files import as_file
from webui.api.tasks import task_of_trial
from webui.waiting.threads import reading, stepped


@async_view("GET", Right.READ | Right.RUN, answer=Media("application/zip"))
async def of_trial(request: HttpRequest, who: Principal, trial_id: int) -> HttpResponseBase:
    """The event files of one trial."""
    await reading(task_of_trial, who, trial_id)
    trials = await reading(lambda: list(Trial.objects.filter(pk=trial_id)))
    return as_file(
        stepped(archive(trials, "tensorboard")), f"trial_{trial_id}_tensorboard.zip", "application/zip"
    )


@async_view("GET", Right.READ | Right.RUN, answer=Media("application/zip"))
async def of_experiment(request: HttpRequest, who: Principal, experiment_id: int) -> HttpResponseBase:
    """The event files of all trials of an experiment."""
    trials = await reading(_trials_of, who, experiment_id)
    name = f"experiment_{experiment_id}_tensorboard.zip"
    return as_file(stepped(archive(trials, "tensorboard")), name, "application/zip")


def _trials_of(who: Principal, experiment_id: int) -> list[Trial]:
    if isinstance(who, Allocation) or not Experiment.objects.filter(pk=experiment_id).exists():
        raise Missing(f"experiment {experiment_id} not found")
    return list(Trial.objects.filter(experiment_id=experiment_id).order_by("pk"))
