"""The one writer of reported metrics. Everything here may be repeated without harm."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from datetime import datetime
from typing import Any

from django.db import transaction
from django.db.models import Q

from metrics.models import Report
from metrics.values import storable, text

GROUP_CHARACTERS = 128  # the column's width

log = logging.getLogger(__name__)


@transaction.atomic
def report(
    trial_id: int,
    run_id: int,
    group: str,
    steps_completed: int,
    values: Mapping[str, Any],
    reported_at: datetime,
) -> list[str]:
    """Store a report of a group at a step, in the caller's transaction.

    Reports of one step merge. A repeated equal value is fine; a name that stands with another value keeps
    it when the same run reported both ("overwriting existing metric keys is not supported"), and takes the
    new one from a later run. The answer names what was refused so; nothing raises: a stream must go on.
    """
    group = text(group)[:GROUP_CHARACTERS]
    kept = storable(values)
    new = Report(
        trial_id=trial_id,
        run_id=run_id,
        group=group,
        steps_completed=steps_completed,
        reported_at=reported_at,
        values=kept,
    )
    standing = _standing(trial_id, group, steps_completed)
    if standing is None:
        # two members may report the same step at once; the one that comes second merges
        Report.objects.bulk_create([new], ignore_conflicts=True)
        standing = _standing(trial_id, group, steps_completed)
        if standing is None or (standing.run_id == run_id and standing.values == kept):
            return []
    return _merge(standing, new)


def _standing(trial_id: int, group: str, steps_completed: int) -> Report | None:
    live = Report.objects.filter(trial_id=trial_id, group=group, steps_completed=steps_completed)
    return live.filter(archived=False).select_for_update().first()


def _merge(standing: Report, new: Report) -> list[str]:
    both = new.values.keys() & standing.values.keys()
    differing = [name for name in both if new.values[name] != standing.values[name]]
    if new.run_id > standing.run_id:
        merged = {**standing.values, **new.values}
        refused: list[str] = []
    else:
        merged = {**new.values, **standing.values}
        refused = sorted(differing)
    run_id = max(new.run_id, standing.run_id)
    if merged != standing.values or run_id != standing.run_id:
        Report.objects.filter(pk=standing.pk).update(values=merged, run_id=run_id)
    if refused:
        log.info(
            "trial %s, group %s, step %s: overwriting existing metric keys is not supported (%s)",
            new.trial_id, new.group, new.steps_completed, ", ".join(refused),
        )  # fmt: skip
    return refused


def archive_after(trial_id: int, steps_completed: int) -> int:
    """A restart goes on from this step: put aside what was reported beyond it, and say how many reports."""
    beyond = Q(trial_id=trial_id, steps_completed__gt=steps_completed, archived=False)
    return Report.objects.filter(beyond).update(archived=True)
