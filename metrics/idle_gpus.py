"""Which GPUs stand idle although somebody holds them: the rule, which is pure, and what was measured for it.

A GPU is idle if every sample of the last so many seconds lies under so many per cent, and the samples cover that time:
of a GPU that nobody measures nothing is said.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import NamedTuple

import numpy as np

from metrics.models import SampleChunk
from metrics.names import split
from metrics.packing import Floats
from metrics.sample_chunks import unpack
from metrics.sample_store import BLOCK_SECONDS

UTILIZATION = "gpu_util"


class Used(NamedTuple):
    """The utilization of one GPU in per cent; `times` are epoch seconds and ascend."""

    times: Floats
    percent: Floats


class Rule(NamedTuple):
    """Under `percent` for `seconds`. Samples may be missing for `gap_seconds` at either end of that time."""

    percent: float
    seconds: float
    gap_seconds: float


def idle_since(used: Used, held_since: float, now: float, rule: Rule) -> float | None:
    """Since when (epoch seconds) the GPU has been idle; None: it is not, or nobody knows.

    That is the beginning of the time that is looked at, `now - rule.seconds`, by which it was already held.
    """
    begin = now - rule.seconds
    inside = (used.times >= begin) & (used.times <= now)
    times, percent = used.times[inside], used.percent[inside]
    if held_since > begin or not len(times):
        return None
    if times[0] > begin + rule.gap_seconds or times[-1] < now - rule.gap_seconds:
        return None
    return None if (percent >= rule.percent).any() else begin


def may_be_idle(used: Used, rule: Rule) -> bool:
    """Whether the newest samples leave it possible, so that the older ones are worth a look."""
    return bool(len(used.percent)) and not (used.percent >= rule.percent).any()


def utilization(task_ids: Collection[str], first_time: float) -> dict[tuple[str, str], Used]:
    """(task id, GPU's UUID) -> what was measured since `first_time` (epoch seconds) by the runs of these tasks."""
    rows = SampleChunk.objects.filter(
        task_id__in=task_ids, first_time__gte=first_time - 2 * BLOCK_SECONDS, last_time__gte=first_time
    ).exclude(grain=SampleChunk.Grain.MINUTES)
    parts: dict[tuple[str, str], list[Used]] = {}
    wanted = rows.values_list("task_id", "first_time", "points", "columns", "data").order_by("first_time")
    for task_id, first, points, columns, data in wanted.iterator(chunk_size=500):
        places = [(at, part) for at, (name, part) in enumerate(map(split, columns)) if name == UTILIZATION]
        if not places:
            continue
        samples = unpack(bytes(data), first, points, columns)
        for at, part in places:
            known = ~np.isnan(samples.high[at]) & (samples.times >= first_time)
            of_part = Used(samples.times[known], samples.high[at][known].astype(np.float64))
            parts.setdefault((str(task_id), part), []).append(of_part)
    return {key: _joined(each) for key, each in parts.items()}


def _joined(parts: list[Used]) -> Used:
    times, percent = (np.concatenate(columns) for columns in zip(*parts, strict=True))
    order = np.argsort(times, kind="stable")
    return Used(times[order], percent[order])
