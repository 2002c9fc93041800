"""The Media page of a trial, and of several trials of an experiment side by side; `?step=` picks a step."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from django.core.paginator import Paginator
from django.http import HttpRequest, HttpResponse

from experiments.models import Trial
from shown import media
from webui.pages.experiments import access
from webui.pages.experiments import experiment as experiment_page
from webui.pages.frame import page, show
from webui.pages.trials import trial
from webui.query import as_ids, as_whole, choices


@page
def of_trial(request: HttpRequest, trial_id: int) -> HttpResponse:
    part = request.GET.get("part")
    return trial.show_tab(request, trial.find(trial_id), "media", _below_trial, own="items", part=part)


@page
def of_experiment(request: HttpRequest, experiment_id: int) -> HttpResponse:
    """`?trials=3,7`: those side by side; else the best that have anything."""
    experiment, part = access.find(experiment_id), request.GET.get("part")
    context = {} if part == "items" else experiment_page.head(request, experiment, "media")
    if part != "head":
        chosen, offered = media.choices(experiment, as_ids(request.GET.get("trials", "").split(",")))
        context |= _below(request, chosen) | {"experiment": experiment, "offered": offered}
    fragment = "experiment" if part == "head" else "trial_media"
    return show(request, "experiment_media", context, room="Experiments", fragment=fragment)


def _below_trial(request: HttpRequest, found: Trial) -> dict[str, Any]:
    return _below(request, [found.pk]) | {"trial": found}


def _below(request: HttpRequest, trial_ids: Sequence[int]) -> dict[str, Any]:
    steps, kinds = media.steps_of(trial_ids), media.kinds_of(trial_ids)
    kind = choices(request.GET, {"kind": media.KINDS})[0].get("kind", "")
    names = Paginator(media.names_of(trial_ids, kind), media.PER_PAGE).get_page(request.GET.get("page"))
    at = as_whole(request.GET.get("step", ""))
    at = (steps[-1] if steps else 0) if at is None else at
    return {
        "steps": steps,
        "at": at,
        "kinds": [(name, media.KINDS[name], count) for name, count in kinds.items()],
        "kind": kind,
        "names": names,
        "groups": media.groups(trial_ids, names, at),
        "refused": Trial.objects.filter(pk__in=trial_ids).exclude(media_refused=""),
    }
