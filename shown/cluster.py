"""The cluster in numbers and words: pools over a range of time, hosts by state, and when a GPU counts as idle."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean

from django.conf import settings

from dispatch.keeping.figures import PoolFigures
from metrics.cluster_charts import PoolSpan
from shown import words
from trainmaster.quantities import duration


@dataclass(frozen=True)
class PoolLine:
    """One pool over the range, in words: the mean and the most of its slots in use and of what waited."""

    pool: str
    usable: float
    used_mean: float
    used_most: float
    waiting_mean: float
    waiting_most: float


def line_of(pool: str, rows: Sequence[PoolSpan]) -> PoolLine:
    return PoolLine(
        pool,
        usable=rows[-1].usable,
        used_mean=fmean(row.used for row in rows),
        used_most=max(row.most_used for row in rows),
        waiting_mean=fmean(row.waiting for row in rows),
        waiting_most=max(row.most_waiting for row in rows),
    )


def by_state(pools: Sequence[PoolFigures]) -> list[tuple[str, str, int]]:
    """(state, its word, hosts), without states that no host is in."""
    found: Counter[str] = Counter()
    for pool in pools:
        found.update(pool.hosts)
    return [(state, words.host_state(state).text, count) for state, count in found.items() if count]


def idle_rule() -> str:
    """When a GPU is flagged, in words."""
    if settings.IDLE_GPU_SECONDS <= 0:
        return "Idle GPUs are not detected (TRAINMASTER_IDLE_GPU_SECONDS is 0)."
    return (
        f"Idle: held by a run, and under {settings.IDLE_GPU_PERCENT:g} % for"
        f" {duration(settings.IDLE_GPU_SECONDS)}; checked once a minute."
    )
