"""Checkpoints of an experiment or a trial as a table, and a page for each: files, metadata, what it is good for."""

from __future__ import annotations

import math
import uuid
from collections.abc import Callable, Collection
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, NamedTuple

from django.contrib import messages
from django.core.paginator import Page, Paginator
from django.http import Http404, HttpRequest, HttpResponse, QueryDict
from django.shortcuts import redirect
from django.views.decorators.http import require_POST

from accounts import rights
from accounts.refusals import Refusal
from events.models import Event
from experiments import checkpoint_deletion, checkpoint_metrics, checkpoints
from experiments.checkpoint_deletion import Standing, standing
from experiments.models import Checkpoint, Experiment, Trial
from experiments.states import EXPERIMENT_END_STATES, GONE, USABLE, CheckpointState
from shown import timeline
from webui.pages.experiments.access import may_act
from webui.pages.experiments.again import can_continue
from webui.pages.frame import actor, page, show, user_of
from webui.query import choices

PER_PAGE = 100
#: chip -> states; the first one is what a page opens with: after a search the deleted ones would hide the rest
CHIPS = {
    "stored": [*USABLE, CheckpointState.PARTIAL],
    "failed": [CheckpointState.ERROR],
    "deleted": [*GONE],
    "all": [*CheckpointState],
}
SORTS = {"newest": "Newest", "steps": "Steps", "metric": "Metric", "size": "Size"}


@dataclass(frozen=True)
class Row:
    checkpoint: Checkpoint
    metric: float | None  # the searcher's, at its step
    is_best: bool  # of all that the table is about
    is_latest: bool  # of its trial: what it goes on from
    kept: str  # why it stays, or that it goes
    host: str


@dataclass(frozen=True)
class Table:
    rows: list[Row]
    page: Page[_Place]
    metric: str  # "" where the config names none
    chip: str
    sort: str
    of_trial: bool
    wrong: list[str]  # a sentence for each filter of the address that is none
    chips = CHIPS
    sorts = SORTS


def table(experiment: Experiment, query: QueryDict, trial: Trial | None = None) -> Table:
    """Build the table for one trial, or all, by `state`, `sort` and `page`; invalid values are dropped and named."""
    chosen, wrong = choices(query, {"state": CHIPS, "sort": SORTS})
    chip, sort = chosen.get("state") or "stored", chosen.get("sort") or "newest"
    whose = {"trial": trial} if trial else {"trial__experiment": experiment}
    rows = Checkpoint.objects.filter(**whose, state__in=CHIPS[chip])
    searcher = experiment.config.get("searcher") or {}
    places = [_Place(*each) for each in rows.order_by().values_list(*_Place._fields)]
    facts = _facts(experiment, {each.trial_id for each in places})
    sign = 1 if searcher.get("smaller_is_better", True) else -1
    current = Paginator(sorted(places, key=_order(sort, facts, sign)), PER_PAGE).get_page(query.get("page"))
    found = Checkpoint.objects.select_related("trial").in_bulk([each.uuid for each in current.object_list])
    shown = [found[each.uuid] for each in current.object_list if each.uuid in found]
    best, hosts = _best(places, facts, sign), checkpoints.hosts_of(shown)
    made = [_row(each, experiment, facts, best, hosts.get(each.run_key, "")) for each in shown]
    return Table(made, current, _metric_name(experiment), chip, sort, trial is not None, wrong)


class _Place(NamedTuple):
    """What orders a checkpoint."""

    uuid: uuid.UUID
    trial_id: int
    steps_completed: int
    reported_at: datetime
    size_bytes: int
    state: str


def _facts(experiment: Experiment, trial_ids: Collection[int]) -> Standing:
    """`standing`, with what was measured of these trials also where all their checkpoints are gone."""
    facts = standing(experiment)
    unread = set(trial_ids) - {trial_id for trial_id, _ in facts.metrics}
    measured = checkpoint_metrics.of_trials(unread, _metric_name(experiment))
    return replace(facts, metrics={**facts.metrics, **measured})


def _metric_name(experiment: Experiment) -> str:
    """The searcher's; "" for a detached run that named none, whose config then says `unmanaged`."""
    metric = str((experiment.config.get("searcher") or {}).get("metric") or "")
    return "" if experiment.unmanaged and metric == "unmanaged" else metric


def _metric(row: Checkpoint | _Place, facts: Standing) -> float | None:
    value = facts.metrics.get((row.trial_id, row.steps_completed))
    return value if value is not None and math.isfinite(value) else None


def _order(sort: str, facts: Standing, sign: int) -> Callable[[_Place], Any]:
    def by_metric(row: _Place) -> tuple[bool, float]:
        value = _metric(row, facts)
        return (value is None, sign * (value or 0.0))

    keys: dict[str, Callable[[_Place], Any]] = {
        "newest": lambda row: -row.reported_at.timestamp(),
        "steps": lambda row: (-row.steps_completed, -row.reported_at.timestamp()),
        "metric": by_metric,
        "size": lambda row: -row.size_bytes,
    }
    return keys[sort]


def _best(rows: list[_Place], facts: Standing, sign: int) -> uuid.UUID | None:
    measured = [
        (sign * value, row.reported_at, row.uuid)
        for row in rows
        if row.state in USABLE and (value := _metric(row, facts)) is not None
    ]
    return min(measured)[2] if measured else None


def _row(row: Checkpoint, experiment: Experiment, facts: Standing, best: Any, host: str) -> Row:
    return Row(
        checkpoint=row,
        metric=_metric(row, facts),
        is_best=row.pk == best,
        is_latest=row.state not in GONE and row.trial.latest_checkpoint_id == row.pk,
        kept=fate(row, experiment, facts),
        host=host,
    )


def fate(row: Checkpoint, experiment: Experiment, facts: Standing) -> str:
    """Why it stays or goes, in words."""
    if row.state == CheckpointState.DELETING:
        return f"being deleted: {row.deletion_waits_for}" if row.deletion_waits_for else "being deleted"
    if row.state == CheckpointState.DELETED:
        return ""
    if row.state == CheckpointState.PARTIAL:
        return "still uploading"
    if words := facts.kept.get(row.pk):
        return ", ".join(words)
    if experiment.unmanaged:
        return "kept until it is deleted"  # no end of a detached run collects (experiments.transitions)
    if experiment.state in EXPERIMENT_END_STATES:
        return "to be removed by retention policy"
    return "deleted when the experiment ends"


def find(trial_id: int, checkpoint_uuid: uuid.UUID) -> Checkpoint:
    """The checkpoint or 404."""
    related = ("trial__experiment__owner", "trial__experiment__job__pool", "trial__task")
    rows = Checkpoint.objects.select_related(*related).filter(pk=checkpoint_uuid, trial_id=trial_id)
    found = rows.first()
    if found is None:
        raise Http404(f"Trial {trial_id} has no checkpoint {checkpoint_uuid}.")
    return found


@page
def detail(request: HttpRequest, trial_id: int, checkpoint_uuid: uuid.UUID) -> HttpResponse:
    row = find(trial_id, checkpoint_uuid)
    experiment = row.trial.experiment
    facts = _facts(experiment, {trial_id})
    losses = checkpoint_deletion.lost_with(row, facts)
    context = {
        "checkpoint": row,
        "trial": row.trial,
        "experiment": experiment,
        "metric_name": _metric_name(experiment),
        "row": _row(row, experiment, facts, None, checkpoints.hosts_of([row]).get(row.run_key, "")),
        "files": sorted((path, size) for path, size in row.resources.items() if not path.endswith("/")),
        "metadata": {"steps_completed": row.steps_completed, **row.metadata},
        "began": row.started.select_related("experiment").order_by("pk"),
        "command": f"trainmaster checkpoint download {row.pk}",
        "is_there": row.state in USABLE,
        "is_gone": row.state in GONE,
        "may_act": may_act(request, experiment),
        "may_continue": row.trial.latest_checkpoint_id == row.pk
        and can_continue(experiment)
        and may_act(request, experiment),
        "may_fork": user_of(request).may_edit and not experiment.unmanaged,
        "losses": losses,
        "objections": list(checkpoint_deletion.objections([row])) if row.state not in GONE else [],
        "entries": timeline.of(Event.objects.filter(kind=Event.Kind.CHECKPOINT, subject=str(row.pk))),
    }
    return show(request, "checkpoint", context, room="Experiments", fragment="checkpoint")


@page
@require_POST
def delete(request: HttpRequest, trial_id: int, checkpoint_uuid: uuid.UUID) -> HttpResponse:
    row = find(trial_id, checkpoint_uuid)
    try:
        rights.require_owner(user_of(request), row.trial.experiment)
        checkpoint_deletion.delete([row.pk], actor=actor(request))
    except Refusal as refusal:
        messages.error(request, str(refusal))
    return redirect(f"/trials/{trial_id}/checkpoints/{checkpoint_uuid}")
