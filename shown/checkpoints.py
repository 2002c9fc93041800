"""Checkpoints as they are shown: a row of each, in an order, why it stays or goes, and how much is stored."""

from __future__ import annotations

import math
import uuid
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, NamedTuple

from django.db.models import BigIntegerField, Count, IntegerField, OuterRef, QuerySet, Subquery, Sum
from django.db.models.functions import Coalesce

from experiments import keeping, metric_reports
from experiments.checkpoint_deletion import Standing, standing
from experiments.models import Checkpoint, Experiment, Trial
from experiments.states import EXPERIMENT_END_STATES, GONE, CheckpointState
from jobs.models import Member


@dataclass(frozen=True)
class CheckpointRow:
    checkpoint: Checkpoint
    #: where the rank that reported it first ran; empty if that is forgotten
    host: str
    #: the searcher's, at its step
    metric: float | None
    #: whether its trial continues from it
    is_latest: bool
    #: why it stays, or that it goes
    kept: str


class CheckpointPlace(NamedTuple):
    """What orders a checkpoint."""

    uuid: uuid.UUID
    trial_id: int
    steps_completed: int
    reported_at: datetime
    size_bytes: int


@dataclass(frozen=True)
class CheckpointList:
    """The checkpoints of an experiment or of one trial, in an order; the rows of a page are read when it is shown."""

    experiment: Experiment
    places: list[CheckpointPlace]
    facts: Standing
    #: the best of those that a trial can start from
    best: uuid.UUID | None

    def rows(self, places: Iterable[CheckpointPlace]) -> list[CheckpointRow]:
        asked = [each.uuid for each in places]
        found = Checkpoint.objects.select_related("trial").in_bulk(asked)
        there = [found[pk] for pk in asked if pk in found]
        hosts = hosts_of(there)
        return [_row(each, self.experiment, self.facts, hosts) for each in there]


def listed(
    experiment: Experiment, states: Collection[CheckpointState], sort: str, trial: Trial | None = None
) -> CheckpointList:
    """Those in these states, by `newest`, `steps`, `metric` or `size`."""
    whose = {"trial": trial} if trial else {"trial__experiment": experiment}
    rows = Checkpoint.objects.filter(**whose, state__in=states)
    places = [CheckpointPlace(*each) for each in rows.order_by().values_list(*CheckpointPlace._fields)]
    facts = facts_of(experiment, {each.trial_id for each in places})
    smaller = experiment.smaller_is_better
    places.sort(key=_order(sort, facts, 1 if smaller else -1))
    own = [each for each in facts.candidates if trial is None or each.trial_id == trial.pk]
    best = next((each.uuid for each in keeping.best_first(own, smaller)), None)
    return CheckpointList(experiment, places, facts, best)


def one(checkpoint: Checkpoint, facts: Standing) -> CheckpointRow:
    return _row(checkpoint, checkpoint.trial.experiment, facts, hosts_of([checkpoint]))


def facts_of(experiment: Experiment, trial_ids: Collection[int]) -> Standing:
    """`standing`, with what was measured of these trials also where all their checkpoints are gone."""
    facts = standing(experiment)
    unread = set(trial_ids) - {trial_id for trial_id, _ in facts.metrics}
    measured = metric_reports.validations_of(unread, metric_name(experiment))
    return replace(facts, metrics={**facts.metrics, **measured})


def metric_name(experiment: Experiment) -> str:
    """The searcher's; "" for a detached run that named none, whose config then says `unmanaged`."""
    metric = experiment.searcher_metric
    return "" if experiment.unmanaged and metric == "unmanaged" else metric


def hosts_of(rows: Iterable[Checkpoint]) -> dict[str, str]:
    """Run key -> the host whose rank reported a checkpoint first; runs that are forgotten are left out."""
    members = Member.objects.filter(allocation_id__in={row.allocation_id for row in rows})
    return {member.run_key: member.host.name for member in members.select_related("host")}


def _metric(row: Checkpoint | CheckpointPlace, facts: Standing) -> float | None:
    value = facts.metrics.get((row.trial_id, row.steps_completed))
    return value if value is not None and math.isfinite(value) else None


def _order(sort: str, facts: Standing, sign: int) -> Callable[[CheckpointPlace], Any]:
    def by_metric(row: CheckpointPlace) -> tuple[bool, float]:
        value = _metric(row, facts)
        return (value is None, sign * (value or 0.0))

    keys: dict[str, Callable[[CheckpointPlace], Any]] = {
        "newest": lambda row: -row.reported_at.timestamp(),
        "steps": lambda row: (-row.steps_completed, -row.reported_at.timestamp()),
        "metric": by_metric,
        "size": lambda row: -row.size_bytes,
    }
    return keys[sort]


def _row(
    checkpoint: Checkpoint, experiment: Experiment, facts: Standing, hosts: Mapping[str, str]
) -> CheckpointRow:
    return CheckpointRow(
        checkpoint=checkpoint,
        host=hosts.get(checkpoint.run_key, ""),
        metric=_metric(checkpoint, facts),
        is_latest=checkpoint.state not in GONE and checkpoint.trial.latest_checkpoint_id == checkpoint.pk,
        kept=_fate(checkpoint, experiment, facts),
    )


def _fate(row: Checkpoint, experiment: Experiment, facts: Standing) -> str:
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


def stored(**whose: Any) -> QuerySet[Checkpoint]:
    """Whose files are there or on their way: what is counted and summed up as stored."""
    return Checkpoint.objects.filter(**whose).exclude(state__in=GONE).order_by()


def stored_numbers(by: str) -> dict[str, Coalesce]:
    """Annotations checkpoint_count and checkpoint_bytes of rows; `by`: how a checkpoint refers to such a row."""
    each = stored(**{by: OuterRef("pk")}).values(by)
    return {
        "checkpoint_count": _or_zero(each.annotate(n=Count("pk")), IntegerField()),
        "checkpoint_bytes": _or_zero(each.annotate(n=Sum("size_bytes")), BigIntegerField()),
    }


def _or_zero(rows: QuerySet[Any, Any], field: Any) -> Coalesce:
    return Coalesce(Subquery(rows.values("n"), output_field=field), 0, output_field=field)
