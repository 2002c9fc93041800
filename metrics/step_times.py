"""When each attempt of a trial reported which step, read from the heads of its chunks alone: no value is unpacked.

Only steps of one group can be compared: those of its training reports, or if there are none of its validation reports.
Groups of the user's own may count something else.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping
from typing import NamedTuple

import numpy as np

from metrics import chunks
from metrics.packing import Integers

#: A group with more reports is not read: these take half a second of processor time, and some hundred MB.
MOST_REPORTS = 2_000_000
#: Trials are read together until they have so many.
_REPORTS_AT_ONCE = 200_000
_GROUPS = """SELECT metric_group.trial_id, metric_group.id, sum(chunk.reports)::bigint
FROM metrics_group metric_group JOIN metrics_chunk chunk ON chunk.group_id = metric_group.id
WHERE metric_group.trial_id = ANY(%s) AND metric_group.name IN ('training', 'validation')
GROUP BY metric_group.trial_id, metric_group.id, metric_group.name ORDER BY metric_group.name = 'training'"""
_HEADS = "SELECT group_id, reports, head FROM metrics_chunk WHERE group_id = ANY(%s)"


class Size(NamedTuple):
    """The group of a trial whose steps count, and how many reports it has."""

    group_id: int
    reports: int


class Reports(NamedTuple):
    """Of one attempt, in no order: times in microseconds by the host's clock, and steps."""

    times: Integers
    steps: Integers


#: (how many reports, the head) of each chunk of a trial
Heads = list[tuple[int, bytes]]


def sizes(trial_ids: Collection[int]) -> dict[int, Size]:
    """Trial -> what there is to read; without those that have no reports, or too many."""
    with chunks.cursor() as cursor:
        cursor.execute(_GROUPS, [list(trial_ids)], binary=True)
        return {
            trial_id: Size(group_id, count)
            for trial_id, group_id, count in cursor.fetchall()
            if count <= MOST_REPORTS
        }


def heads(groups: Mapping[int, Size]) -> Iterator[tuple[int, Heads]]:
    """(trial, the heads of all its chunks, with what was set aside after a restart), of some trials at once."""
    batch: dict[int, int] = {}
    count = 0
    for trial_id, size in groups.items():
        if batch and count + size.reports > _REPORTS_AT_ONCE:
            yield from _read(batch)
            batch, count = {}, 0
        batch[size.group_id] = trial_id
        count += size.reports
    yield from _read(batch)


def _read(trials: Mapping[int, int]) -> Iterator[tuple[int, Heads]]:
    found: dict[int, Heads] = defaultdict(list)
    with chunks.cursor() as cursor:
        cursor.execute(_HEADS, [list(trials)], binary=True)
        for group_id, count, head in cursor:
            found[trials[group_id]].append((count, head))
    yield from found.items()


def by_attempt(of_trial: Heads, last_run: int) -> dict[int, Reports]:
    """Number of the attempt -> its reports. Training code may name attempts beyond the last, which are left out."""
    found: dict[int, list[tuple[Integers, Integers]]] = defaultdict(list)
    for count, head in of_trial:
        steps, times, runs = chunks.unpack_head(head, count)
        for run in np.unique(runs[(runs > 0) & (runs <= last_run)]).tolist():
            found[run].append((times[runs == run], steps[runs == run]))
    return {
        run: Reports(
            np.concatenate([times for times, _ in parts]), np.concatenate([steps for _, steps in parts])
        )
        for run, parts in found.items()
    }
