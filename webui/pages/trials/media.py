"""The Media page of a trial, and of several trials of an experiment side by side; `?step=` picks a step."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from django.http import HttpRequest, HttpResponse

from experiments.models import Trial
from shown import media
from webui.pages.experiments import access
from webui.pages.experiments import experiment as experiment_page
from webui.pages.frame import page, show
from webui.pages.trials import trial
from webui.query import as_ids, as_whole


@page
def of_trial(request: HttpRequest, trial_id: int) -> HttpResponse:
    part = request.GET.get("part")
    return trial.show_tab(request, trial.find(trial_id), "media", _of_one, own="items", part=part)


@page
def of_experiment(request: HttpRequest, experiment_id: int) -> HttpResponse:
    """`?trials=3,7`: those side by side; else the best that have anything."""
    experiment, part = access.find(experiment_id), request.GET.get("part")
    if part == "head":
        context = experiment_page.head(request, experiment, "media")
        return show(request, "experiment_media", context, room="Experiments", fragment="experiment")
    chosen, offered = media.choices(experiment, as_ids(request.GET.get("trials", "").split(",")))
    context = {} if part else experiment_page.head(request, experiment, "media")
    context |= _board(request, chosen) | {"offered": offered}
    return show(request, "experiment_media", context, room="Experiments", fragment="trial_media")


def _of_one(request: HttpRequest, found: Trial) -> dict[str, Any]:
    return _board(request, [found.pk])


def _board(request: HttpRequest, trial_ids: Sequence[int]) -> dict[str, Any]:
    step, kind = as_whole(request.GET.get("step", "")), request.GET.get("kind", "")
    known = request.GET.get("known", "") if "part" in request.GET else ""
    return {"board": media.board(trial_ids, step, kind, request.GET.get("page"), known)}
