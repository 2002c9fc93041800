"""One trial: where it runs, why it waits or ended, its metrics, checkpoints, attempts, timeline and log."""

from __future__ import annotations

import shlex
from collections.abc import Callable
from functools import partial
from typing import Any

from django.db.models import Count, Q, Sum
from django.http import Http404, HttpRequest, HttpResponse, JsonResponse

from dispatch.keeping import log_retention
from events.models import Event
from experiments import phases
from experiments.models import Trial
from experiments.search_preview import unit_of
from experiments.states import TRIAL_END_STATES
from jobs import held_slots
from jobs.states import AllocationState
from logs.hangs import rows as hangs
from logs.lines import shown as safe
from metrics import charts
from shown import checkpoints as shown_checkpoints
from shown import runs, stories, tabs, timeline, verdicts
from shown import trials as shown_trials
from shown.hparams import named
from webui.pages.experiments import again
from webui.pages.experiments.access import may_act
from webui.pages.experiments.experiment import actions
from webui.pages.frame import or_404, page, show
from webui.pages.trials import checkpoints
from webui.query import LARGEST_INTEGER, as_whole

#: Charts on the overview.
OVERVIEW_CHARTS = 6
#: Hangs on the overview.
HANGS = 5


def find(trial_id: int) -> Trial:
    """The trial or 404."""
    related = ("experiment__owner", "experiment__job__pool", "task__job__pool", "latest_checkpoint")
    found = Trial.objects.select_related(*related).filter(pk=trial_id).first()
    return or_404(found, f"There is no trial {trial_id}.")


@page
def detail(request: HttpRequest, trial_id: int, tab: str = "overview") -> HttpResponse:
    trial = find(trial_id)
    if tab not in tabs.TRIAL:
        raise Http404(f"A trial has no page {tab}; it has {', '.join(tabs.TRIAL)}.")
    context = context_of(request, trial, tab)
    if tab == "overview":
        stored = shown_checkpoints.stored(trial=trial)
        context |= {
            "stored": stored.aggregate(count=Count("pk"), size=Sum("size_bytes")),
            "log_kept": log_retention.kept(trial.task_id),
            "hangs": [hangs.shown(row) for row in hangs.told_of(trial.task_id)[:HANGS]],
        }
    elif tab == "checkpoints":
        context["table"] = checkpoints.table(trial.experiment, request.GET, trial)
    elif tab == "timeline":
        context["entries"] = timeline.of(
            Event.objects.filter(task_id=trial.task_id),
            unit_of(trial.experiment.searcher),
        )
    template = "trial_logs" if tab == "logs" else "trial"
    return show(request, template, context, room="Experiments", fragment="trial")


def context_of(request: HttpRequest, trial: Trial, tab: str) -> dict[str, Any]:
    """What the head of all its pages shows, and the overview."""
    attempt = _attempt(request)
    attempts = list(trial.task.allocations.order_by("-number").prefetch_related("members__host"))
    current = attempts[0] if attempts else None
    trials = trial.experiment.trials.count()
    running = current is not None and current.state != AllocationState.TERMINATED
    rung = shown_trials.stopped_early(trial.experiment, [trial]).get(trial.pk)
    return {
        "trial": trial,
        "experiment": trial.experiment,
        "phase": shown_trials.STOPPED_EARLY if rung else phases.of_trials([trial])[trial.pk],
        "rung": rung,
        "ran": partial(runs.ran, Q(task=trial.task_id)),  # asked by the overview alone
        "held": partial(runs.held, Q(task=trial.task_id)),  # likewise
        "hparams": named(trial.hparams),
        "metadata": named(trial.metadata),
        "tab": tab,
        "tabs": tabs.TRIAL,
        "log_at": f"/trials/{trial.pk}",
        "attempts": attempts,
        "parts": verdicts.parts(current),
        "current": current if running else None,
        "waiting": verdicts.waiting(trial.task, trial.task.job.pool, trial.experiment),
        "silent": verdicts.silent_hosts(current),
        "hang": hangs.open_of(trial.task_id) if running else None,
        "idle_gpus": held_slots.of_task(trial.task_id) if running else 0,
        "story": stories.of_task(trial.task, attempt),
        "lines_at": f"/trials/{trial.pk}/logs",
        "chosen": attempt,
        "several": len(attempts) > 1,
        "missing_bytes": verdicts.missing_bytes(trial.task_id),
        "ended": trial.state in TRIAL_END_STATES,
        "actions": [each for each in actions(trial.experiment, trials) if each[0].on_runs],
        "is_killable": trials > 1 and trial.state not in TRIAL_END_STATES,
        "may_act": may_act(request, trial.experiment),
        "again": again.links_of_trial(request, trial),
        "entrypoint": _words(trial.experiment.config.get("entrypoint") or ""),
        "follow": f"trainmaster trial logs {trial.pk} --follow",
        "max_restarts": trial.experiment.config.get("max_restarts", 5),
    }


def show_tab(
    request: HttpRequest,
    trial: Trial,
    tab: str,
    below: Callable[[HttpRequest, Trial], dict[str, Any]],
    *,
    own: str,
    part: str | None,
) -> HttpResponse:
    """A tab with a page of its own: its head, and what is `below`. The part `own` is the latter, others the head."""
    context = {} if part == own else context_of(request, trial, tab)
    if part is None or part == own:
        context |= below(request, trial)
    template = f"trial_{tab}"
    return show(request, template, context, room="Experiments", fragment=template if part == own else "trial")


def _attempt(request: HttpRequest) -> int | None:
    """`?attempt=2`. Raises Http404 for what is no number."""
    text = request.GET.get("attempt", "")
    number = as_whole(text, LARGEST_INTEGER)
    if text and number is None:
        raise Http404(f"An attempt is a number, not {safe(text)[:40]!r}.")
    return number


def _words(entrypoint: str | list[str]) -> str:
    return entrypoint if isinstance(entrypoint, str) else shlex.join(entrypoint)


@page
def hang(request: HttpRequest, trial_id: int, hang_id: int) -> HttpResponse:
    """The stacks of all ranks as they were when the trial was found to hang."""
    row = or_404(
        hangs.told_of(find(trial_id).task_id).filter(pk=hang_id).first(), f"There is no hang {hang_id}."
    )
    return HttpResponse(hangs.stacks(row), content_type="text/plain; charset=utf-8")


@page
def chart(request: HttpRequest, trial_id: int) -> HttpResponse:
    """The figures of the trial's first metrics as Plotly JSON, for its overview; all are on its Metrics page."""
    trial = find(trial_id)
    metric = trial.experiment.searcher_metric
    return JsonResponse({"figures": charts.trial_figures(trial.pk, highlight=metric, most=OVERVIEW_CHARTS)})
