"""Makes chunks of timings large once they are cold, thins old ones, and forgets what has been kept long enough.

A rank ships an interval a second, in rows of half a minute. Those of a quarter of an hour become one compressed row
that says the same. After a day intervals are joined to minutes, after a week to ten minutes (settings.TIMING_*; how:
metrics.timing_thinning). A rank of eight timings so takes 11 MB for its last day, 0.2 MB for each of the week before it
and 0.02 MB for each older one; as shipped, it would be 32 MB a day.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any

from django.conf import settings
from django.db import connection, transaction

from metrics.models import TimingChunk
from metrics.sample_merging import removed
from metrics.timing_frames import Frames, Known, compressed, content, pack, unpack
from metrics.timing_intake import CHUNK_SECONDS
from metrics.timing_thinning import thinned

#: a rank may ship what it timed so much later; what comes later still is merged anew
_COLD_SECONDS = 60
_MOST_BLOCKS = 5000


@dataclass(frozen=True)
class _Level:
    """What rows of a grain become: one row for each block, `after` so many seconds, of intervals of `seconds`."""

    grain: int
    block_seconds: int
    after: float
    seconds: float | None


def _levels() -> list[_Level]:
    grain, day = TimingChunk.Grain, 86_400
    return [
        _Level(grain.WHOLE, 900, _COLD_SECONDS, None),
        _Level(grain.MINUTES, 6 * 3600, settings.TIMING_SECONDS_HOURS * 3600, 60.0),
        _Level(grain.TENS, 2 * day, settings.TIMING_MINUTES_DAYS * day, 600.0),
    ]


_DUE = f"""
SELECT DISTINCT task_id, rank, slot * {CHUNK_SECONDS} / %(block)s AS block FROM metrics_timingchunk
WHERE grain = ANY(%(finer)s) AND last_time < %(before)s
  AND (slot * {CHUNK_SECONDS} / %(block)s + 1) * %(block)s < %(before)s
LIMIT {_MOST_BLOCKS}
"""


def merge_due(seconds: float, now: float | None = None) -> int:
    """Merge and thin what is old enough, for at most about so many seconds; how many rows fewer there are.

    `now` is in epoch seconds, by default the server's clock.
    """
    deadline = time.monotonic() + seconds
    now = time.time() if now is None else now
    fewer = 0
    for level in _levels():
        wanted: dict[str, Any] = {
            "block": level.block_seconds,
            "finer": list(range(level.grain)),
            "before": now - level.after,
        }
        with connection.cursor() as cursor:
            cursor.execute(_DUE, wanted)
            due = cursor.fetchall()
        for task_id, rank, block in due:
            if time.monotonic() > deadline:
                return fewer
            fewer += _merge(level, task_id, rank, block * level.block_seconds)
    return fewer


@transaction.atomic
def _merge(level: _Level, task_id: str, rank: int, start: int) -> int:
    """Make one row of all that a rank has of the block from `start` (epoch seconds) on; what came late goes in too."""
    first_slot, end_slot = (-(-at // CHUNK_SECONDS) for at in (start, start + level.block_seconds))
    block = TimingChunk.objects.select_for_update().filter(
        task_id=task_id, rank=rank, slot__gte=first_slot, slot__lt=end_slot, grain__lte=level.grain
    )
    rows = list(block.order_by("slot", "grain"))
    if not any(row.grain < level.grain for row in rows):
        return 0
    whole = b"".join(content(bytes(row.data)) for row in rows)
    frames = sum(row.frames for row in rows)
    if level.seconds is not None:
        known: Known = {}
        parts: list[Frames] = list(unpack(whole, known))
        joined = thinned(rank, parts, level.seconds)
        frames, whole = len(joined), b"".join(map(pack, joined))
    TimingChunk.objects.filter(pk__in=[row.pk for row in rows]).delete()
    TimingChunk.objects.create(
        task_id=task_id,
        rank=rank,
        grain=level.grain,
        slot=rows[0].slot,
        host=rows[-1].host,
        first_step=min(row.first_step for row in rows),
        last_step=max(row.last_step for row in rows),
        last_time=max(row.last_time for row in rows),
        frames=frames,
        data=compressed(whole),
    )
    return len(rows) - 1


def remove_due(seconds: float, now: float | None = None) -> int:
    """Remove what has been kept as long as samples are, for at most about so many seconds; how many rows."""
    if settings.SAMPLE_RETENTION_DAYS < 0:
        return 0
    before = (time.time() if now is None else now) - settings.SAMPLE_RETENTION_DAYS * 86_400
    return removed(TimingChunk.objects.all(), before, time.monotonic() + seconds)
