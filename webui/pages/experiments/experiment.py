"""One experiment: state, trials, config, code, timeline, and the actions that its state allows."""

from __future__ import annotations

from functools import partial

from django.contrib import messages
from django.db.models import Q
from django.http import Http404, HttpRequest, HttpResponse, JsonResponse
from django.http.response import HttpResponseBase
from django.shortcuts import redirect

from accounts import rights
from accounts.rights import Right, declares
from experiments import event_files, phases
from experiments.actions import ACTIONS, Action, legal
from experiments.models import Experiment
from experiments.search_preview import unit_of
from metrics import best_so_far
from shown import runs, stories, tabs, timeline, verdicts
from shown.experiments import why_completing
from webui.pages.experiments import again
from webui.pages.experiments.access import find, may_act
from webui.pages.frame import actor, back_to, page, posted, refusals_told, show, user_of
from webui.pages.trials import checkpoints
from webui.pages.trials import table as trial_table


@page
def detail(request: HttpRequest, experiment_id: int, tab: str = "overview") -> HttpResponse:
    experiment = find(experiment_id)
    if tab not in tabs.EXPERIMENT:
        raise Http404(f"An experiment has no page {tab}; it has {', '.join(tabs.EXPERIMENT)}.")
    context = head(request, experiment, tab)
    fragment = "experiment"
    if tab == "overview" and request.GET.get("part") in {None, "trials"}:
        context["trials"] = trial_table.table(experiment, request.GET)
        fragment = "experiment_trials"
    elif tab == "checkpoints":
        context["table"] = checkpoints.table(experiment, request.GET)
    elif tab == "timeline":
        context["entries"] = timeline.of_experiment(
            experiment.pk,
            dict(experiment.trials.values_list("task_id", "pk")),
            unit_of(experiment.searcher),
        )
    return show(request, "experiment", context, room="Experiments", fragment=fragment)


def head(request: HttpRequest, experiment: Experiment, tab: str) -> dict[str, object]:
    """What stands above every tab: state, actions, tabs."""
    trials = list(experiment.trials.select_related("task").order_by("pk")[:2])
    only = trials[0] if len(trials) == 1 else None
    searches = experiment.searcher.get("name", "single") != "single"
    first, *others = tabs.EXPERIMENT
    return {
        "experiment": experiment,
        "phase": phases.of_experiments([experiment])[experiment.pk],
        "why": why_completing([experiment]).get(experiment.pk, "")
        or (verdicts.of_trials(trials, experiment.job.pool).get(only.pk, "") if only else ""),
        "failure": stories.of_experiment(experiment) if tab == "overview" else None,
        "tab": tab,
        "tabs": [first, *(tabs.SEARCH if searches or len(trials) > 1 else []), *others],
        "actions": actions(experiment, experiment.trials.count()),
        "may_act": may_act(request, experiment),
        "again": again.links(request, experiment),
        "tensorboard": partial(_has_tensorboard, experiment),  # asked by the overview alone
        "ran": partial(runs.ran, Q(task__trial__experiment=experiment)),  # likewise
        "held": partial(runs.held, Q(task__trial__experiment=experiment)),  # likewise
    }


@page
def chart(request: HttpRequest, experiment_id: int) -> JsonResponse:
    """{"figures": the best validation over time, and each trial's by step}; empty before the first validation."""
    experiment = find(experiment_id)
    figures = best_so_far.figures(
        list(experiment.trials.order_by("pk").values_list("pk", flat=True)),
        experiment.searcher_metric,
        is_smaller_better=experiment.smaller_is_better,
        begin=experiment.started_at.timestamp(),
    )
    return JsonResponse({"figures": figures})


@declares({"GET": Right.READ, "POST": Right.EDIT})
def detail_or_act(request: HttpRequest, experiment_id: int, tab: str) -> HttpResponseBase:
    """GET shows a tab; POST carries out the action of that name."""
    if request.method == "POST":
        return act(request, experiment_id, tab)
    return detail(request, experiment_id, tab)


def _has_tensorboard(experiment: Experiment) -> bool:
    """Whether any trial has reported a metric, or written a file for it."""
    reported = experiment.trials.exclude(summary_metrics={}).exists()
    return reported or event_files.folder(experiment.pk).exists()


def actions(experiment: Experiment, trials: int) -> list[tuple[Action, str]]:
    """What can be done now, with what the button says: also its scope. Delete asks on a page of its own."""
    scope = f" experiment ({trials} trials)" if trials > 1 else ""
    return [
        (action, action.label + (scope if action.on_runs else ""))
        for action in legal(experiment)
        if action.name != "delete"
    ]


@posted(Right.EDIT)
def act(request: HttpRequest, experiment_id: int, action: str) -> HttpResponse:
    """Carry an action out and return to where it was asked for."""
    experiment = find(experiment_id)
    if action not in ACTIONS:
        raise Http404(f"There is no action {action}.")
    with refusals_told(request):
        rights.require_owner(user_of(request), experiment)
        ACTIONS[action].run(experiment_id, actor=actor(request))
        if action == "delete":  # the others are seen on the page that follows
            messages.success(
                request, f"Experiment {experiment_id} and everything stored for it are being deleted."
            )
    home = f"/experiments/{experiment_id}"
    return redirect("/experiments" if action == "delete" else back_to(request, home))
