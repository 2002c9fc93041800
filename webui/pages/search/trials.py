"""The Trials page of an experiment: columns and filters to choose, and what can be done to those ticked."""

from __future__ import annotations

import re
from typing import Any

from django.contrib import messages
from django.db.models.fields.json import KeyTransform
from django.http import HttpRequest, HttpResponse, QueryDict
from django.shortcuts import redirect

from accounts import rights
from accounts.refusals import Refusal
from accounts.rights import Right
from experiments import outcomes
from experiments.models import Experiment, Trial
from experiments.states import TRIAL_END_STATES
from metrics.comparisons import metrics_of
from metrics.hparam_axes import Axis, axes
from metrics.parallel_chart import METRIC
from shown.search import tried
from shown.trials import TrialRow
from trainmaster import yamltext
from webui.pages.experiments import experiment as experiment_page
from webui.pages.experiments.access import find
from webui.pages.frame import actor, page, posted, refusals_told, show, user_of
from webui.pages.search import query as sweep_query
from webui.pages.search.charts import field
from webui.pages.table_columns import Column
from webui.pages.trials import table as trial_table
from webui.query import as_ids

#: killed by one request
MOST_KILLED = 500
_TRIAL_PAGE = re.compile(r"/trials/\d+(/[a-z]+)?", re.ASCII)
STATES = ("QUEUED", "STARTING", "RUNNING", "PAUSED", "COMPLETED", "CANCELED", "ERROR")


@page
def detail(request: HttpRequest, experiment_id: int) -> HttpResponse:
    """`?part=trials`: only the table, `?part=head`: only what stands above the tabs."""
    experiment = find(experiment_id)
    part = request.GET.get("part")
    context = experiment_page.head(request, experiment, "trials")
    if part == "head":
        return show(request, "search_trials", context, room="Experiments", fragment="experiment")
    varying, kept = _by_hparams(experiment, request.GET)
    metrics = metrics_of(tried.reporting(experiment)) if _names(request.GET, trial_table.METRIC) else []
    columns = trial_table.of(experiment, varying, metrics)
    context["trials"] = trial_table.table(experiment, request.GET, columns, kept)
    if part is None:
        context |= _form(request, columns, varying) | {"best": best(experiment)}
    return show(request, "search_trials", context, room="Experiments", fragment="experiment_trials")


def _names(query: QueryDict, columns: str) -> bool:
    """Does the page offer such columns, or the table alone show or sort by some?"""
    asked = (*query.getlist("c"), query.get("sort", "").removeprefix("-"))
    return "part" not in query or any(key.startswith(columns) for key in asked)


def _by_hparams(experiment: Experiment, query: QueryDict) -> tuple[list[Axis], set[int] | None]:
    """The hyperparameters that vary, as far as the address needs them, and the trials that its bounds keep."""
    bounds = sweep_query.bounds(query)
    if not bounds and not _names(query, trial_table.HPARAM):
        return [], None
    best_value = KeyTransform("searcher_metric", "best_validation") if METRIC in bounds else None
    found = tried.tried(experiment, best_value)
    varying = axes(experiment.config.get("hyperparameters") or {}, (hparams for _, hparams, _ in found))
    return varying, tried.within(found, bounds) if bounds else None


def _form(request: HttpRequest, columns: dict[str, Column[TrialRow]], varying: list[Axis]) -> dict[str, Any]:
    chosen = [key for key in request.GET.getlist("c") if key in columns] or list(trial_table.USUAL)
    bounds = sweep_query.bounds(request.GET)
    groups: dict[str, list[tuple[str, str, bool]]] = {"Trial": [], "Hyperparameters": [], "Latest of": []}
    for key, column in columns.items():
        word = "Hyperparameters" if key.startswith(trial_table.HPARAM) else "Trial"
        word = "Latest of" if key.startswith(trial_table.METRIC) else word
        if key != trial_table.TRIAL:
            groups[word].append((key, column.title, key in chosen))
    states = request.GET.getlist("state")
    return {
        "columns": {word: group for word, group in groups.items() if group},
        "states": [(state, state in states) for state in STATES],
        "fields": [field(axis, bounds) for axis in varying],
        "of_metric": bounds.get(METRIC),
        "filters": len(bounds) + bool([state for state in states if state]),
        "sort": request.GET.get("sort", ""),
        "most_killed": MOST_KILLED,
    }


def best(experiment: Experiment) -> dict[str, Any] | None:
    """The trial with the best validation so far, its hyperparameters as YAML; None before the first validation."""
    if experiment.best_trial_id is None:
        return None
    trial = Trial.objects.filter(pk=experiment.best_trial_id, experiment=experiment).first()
    if trial is None or not trial.hparams:
        return None
    return {"trial": trial, "yaml": yamltext.dump(trial.hparams)}


@posted(Right.EDIT)
def kill(request: HttpRequest, experiment_id: int) -> HttpResponse:
    """Kill the trials that the form names (`trial`, repeats), and say how many; those that have ended stay so.

    `back`: the table as it was, or the page of a trial on which it was asked for.
    """
    experiment = find(experiment_id)
    asked = as_ids(request.POST.getlist("trial"))
    with refusals_told(request):
        rights.require_owner(user_of(request), experiment)
        if not asked:
            raise Refusal("No trials were selected.")
        _kill(request, experiment, asked)
    back = request.POST.get("back", "")
    own = f"/experiments/{experiment_id}/trials"
    is_known = back == own or back.startswith(f"{own}?") or _TRIAL_PAGE.fullmatch(back)
    return redirect(back if is_known else own)


def _kill(request: HttpRequest, experiment: Experiment, asked: list[int]) -> None:
    living = experiment.trials.filter(pk__in=asked[:MOST_KILLED]).exclude(state__in=TRIAL_END_STATES)
    killed, refusal = 0, ""
    for pk in living.order_by("pk").values_list("pk", flat=True):
        try:
            outcomes.kill_trial(pk, actor=actor(request))
            killed += 1
        except Refusal as error:
            refusal = str(error)
    left = len(asked) - killed
    words = f"{killed} trial{'s are' if killed != 1 else ' is'} being killed."
    if left:
        words += f" {left} {'were' if left != 1 else 'was'} not killed: "
        words += refusal or "already ended, or not a trial of this experiment."
    (messages.error if refusal else messages.success)(request, words)
