"""When each attempt of a trial reported which step, read from the heads of its chunks alone: no value is unpacked."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping

import numpy as np

from metrics import chunks

#: Of a chunk so many reports of an attempt are enough.
_MOST_OF_A_CHUNK = 20
#: So many chunks are read for all trials together, of each group those with the highest steps.
_MOST_CHUNKS = 2_000
_LEAST_OF_A_GROUP = 2
#: that a trial usually has
_GROUPS = 2
_HEADS = """SELECT metric_group.trial_id, part.reports, part.head
FROM metrics_group metric_group CROSS JOIN LATERAL (
  SELECT chunk.reports, chunk.head FROM metrics_chunk chunk WHERE chunk.group_id = metric_group.id
  ORDER BY chunk.last_step DESC LIMIT %s) part
WHERE metric_group.trial_id = ANY(%s)"""

#: (time in microseconds by the host's clock, step)
Times = list[tuple[int, int]]


def by_attempt(last_runs: Mapping[int, int]) -> dict[tuple[int, int], Times]:
    """(trial, number of the attempt) -> when it reported which step, in no order.

    `last_runs`: of each trial the number of its last attempt; training code may name others, which are left out. What
    was set aside after a restart is there too.
    """
    found: dict[tuple[int, int], Times] = defaultdict(list)
    if not last_runs:
        return found
    with chunks.cursor() as cursor:
        most = max(_LEAST_OF_A_GROUP, _MOST_CHUNKS // (_GROUPS * len(last_runs)))
        cursor.execute(_HEADS, [most, list(last_runs)], binary=True)
        for trial_id, count, head in cursor:
            steps, times, runs = chunks.unpack_head(head, count)
            for run in np.unique(runs[(runs > 0) & (runs <= last_runs[trial_id])]).tolist():
                rows = np.flatnonzero(runs == run)
                if len(rows) > _MOST_OF_A_CHUNK:
                    rows = rows[np.linspace(0, len(rows) - 1, _MOST_OF_A_CHUNK).astype(np.intp)]
                found[trial_id, run] += zip(times[rows].tolist(), steps[rows].tolist(), strict=True)
    return found
