"""The one writer of timings: stores them as they come in, makes chunks large once they are cold, thins old ones, and
forgets what has been kept long enough.

The stream's offset, which the caller moves, lets each batch in once. A rank ships an interval a second, in rows of half
a minute. Those of a quarter of an hour become one compressed row that says the same. After a day intervals are joined
to minutes, after a week to ten minutes (settings.TIMING_*; how: `thinned`). A rank of eight timings so takes 11 MB for
its last day, 0.2 MB for each of the week before it and 0.02 MB for each older one; as shipped, it would be 32 MB a day.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

import numpy as np
import numpy.typing as npt
from django.conf import settings
from django.db import connection, transaction

from events.announce import announce
from metrics.chunks import cursor
from metrics.models import TimingChunk
from metrics.packing import Floats
from metrics.sample_store import removed
from metrics.timing_frames import FIELDS, Frame, Frames, Known, compressed, content, pack, read_record, unpack

#: a row is rewritten with each of its frames, so it is short; `merge_due` makes few of many
CHUNK_SECONDS = 32

_STORE = """
INSERT INTO metrics_timingchunk AS kept
  (task_id, rank, slot, grain, host, first_step, last_step, last_time, frames, data)
SELECT %(task)s, new.rank, new.slot, %(grain)s, %(host)s,
  new.first_step, new.last_step, new.last_time, new.frames, new.data
FROM unnest(%(rank)s::int[], %(slot)s::bigint[], %(first_step)s::bigint[], %(last_step)s::bigint[],
            %(last_time)s::float8[], %(frames)s::int[], %(data)s::bytea[])
  AS new (rank, slot, first_step, last_step, last_time, frames, data)
ON CONFLICT (task_id, rank, slot, grain) DO UPDATE SET
  host = EXCLUDED.host,
  first_step = least(kept.first_step, EXCLUDED.first_step),
  last_step = greatest(kept.last_step, EXCLUDED.last_step),
  last_time = greatest(kept.last_time, EXCLUDED.last_time),
  frames = kept.frames + EXCLUDED.frames,
  data = kept.data || EXCLUDED.data
"""
#: a rank may ship what it timed so much later; what comes even later is merged again
_COLD_SECONDS = 60
_MOST_BLOCKS = 5000


def store(task_id: str, host: str, records: Iterable[Mapping[str, Any]]) -> int:
    """Store the `timings` records of a batch, in the caller's transaction, by one statement; how many there were.

    Training code wrote them: one of another form than docs/protocol.md says counts as not given.
    """
    chunks: dict[tuple[int, int], list[Frame]] = {}
    for record in records:
        frame = read_record(record)
        if frame is not None:
            chunks.setdefault((frame.rank, int(frame.last_time // CHUNK_SECONDS)), []).append(frame)
    if not chunks:
        return 0
    ordered = sorted(chunks.items())  # two hosts that say the same rank must not wait for each other
    wanted: dict[str, Any] = {
        "task": task_id,
        "grain": int(TimingChunk.Grain.SHIPPED),
        "host": host,
        "rank": [rank for (rank, _), _ in ordered],
        "slot": [slot for (_, slot), _ in ordered],
        "first_step": [min(frame.first_step for frame in frames) for _, frames in ordered],
        "last_step": [max(frame.last_step for frame in frames) for _, frames in ordered],
        "last_time": [max(frame.last_time for frame in frames) for _, frames in ordered],
        "frames": [len(frames) for _, frames in ordered],
        "data": [b"".join(map(pack, frames)) for _, frames in ordered],
    }
    with cursor() as sends:
        sends.execute(_STORE, wanted)
    announce(f"timings:{task_id}")
    return sum(map(len, chunks.values()))


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


# --- how intervals are joined ---------------------------------------------------------------------------------

_N, _SUM, _MIN, _MAX, _P50, _P95 = range(len(FIELDS))
#: how much of a part's n lies at its median, at its 95th percentile, and at its most
_SHARES = np.array([0.5, 0.45, 0.05])
_PLACES = [_P50, _P95, _MAX]


def thinned(rank: int, parts: Sequence[Frames], seconds: float) -> list[Frame]:
    """One frame for each span of so many seconds in which something ended, in order of time. Pure.

    Where steps were taken again after a restart, frames of both attempts stay apart. n, sums, least and most stay
    exact. Of quantiles only those of the parts are known, so they are estimated from above: of each part half of its n
    are taken to lie at its median, up to 95 of 100 at its 95th percentile, and the rest at its most. The result is
    never below the true quantile, never above the highest of the parts' own, exact where each part has one value, and
    joining again keeps all of that.
    """
    order = np.argsort(np.concatenate([part.last_time for part in parts]), kind="stable")
    first_time, last_time, first_step, last_step = (
        np.concatenate([getattr(part, field) for part in parts])[order]
        for field in ("first_time", "last_time", "first_step", "last_step")
    )
    went_back = first_step[1:] < last_step[:-1]
    begins = np.flatnonzero((np.diff(np.floor(last_time / seconds)) != 0) | went_back) + 1
    ends = np.append(begins, len(order))  # where in the order of time each group ends
    label = np.empty(len(order), dtype=np.intp)  # of each frame in the order of `parts`, its group
    label[order] = np.repeat(np.arange(len(ends)), np.diff(ends, prepend=0))
    labels = np.split(label, np.cumsum([len(part.last_time) for part in parts])[:-1])
    timed = _by_group([(part.names, part.values) for part in parts], labels, len(ends))
    counted = _by_group([(part.counted, part.counts) for part in parts], labels, len(ends))
    frames = []
    for group, (start, end) in enumerate(zip(chain([0], ends[:-1]), ends, strict=True)):
        own, sums = timed[group], counted[group]
        frames.append(
            Frame(
                rank,
                float(first_time[start:end].min()),
                float(last_time[end - 1]),
                int(first_step[start:end].min()),
                int(last_step[start:end].max()),
                tuple(own),
                np.array([_joined(rows) for rows in own.values()], dtype=np.float32).reshape(-1, len(FIELDS)),
                tuple(sums),
                np.array([values.sum() for values in sums.values()], dtype=np.float32),
            )
        )
    return frames


def _by_group(
    columns: Iterable[tuple[tuple[str, ...], npt.NDArray[np.float32]]],
    labels: Sequence[npt.NDArray[np.intp]],
    groups: int,
) -> list[dict[str, Floats]]:
    """Return the values of each group by name; `columns` are the names and values of each part, `labels` its groups."""
    found: dict[str, list[tuple[npt.NDArray[np.intp], Floats]]] = {}
    for (names, values), own in zip(columns, labels, strict=True):
        for index, name in enumerate(names):
            found.setdefault(name, []).append((own, values[:, index].astype(np.float64)))
    grouped: list[dict[str, Floats]] = [{} for _ in range(groups)]
    for name, each in found.items():
        for group, of_group in _runs(each):
            grouped[group][name] = of_group
    return grouped


def _runs(found: Sequence[tuple[npt.NDArray[np.intp], Floats]]) -> list[tuple[int, Floats]]:
    """What is of one group, group after group."""
    labels = np.concatenate([own for own, _ in found])
    values = np.concatenate([each for _, each in found])
    order = np.argsort(labels, kind="stable")
    labels, values = labels[order], values[order]
    begins = np.concatenate([[0], np.flatnonzero(np.diff(labels)) + 1])
    return list(zip(labels[begins].tolist(), np.split(values, begins[1:]), strict=True))


def _joined(rows: Floats) -> Floats:
    """Combine rows of FIELDS into one."""
    joined = np.empty(len(FIELDS))
    joined[_N], joined[_SUM] = rows[:, _N].sum(), rows[:, _SUM].sum()
    joined[_MIN], joined[_MAX] = rows[:, _MIN].min(), rows[:, _MAX].max()
    if len(rows) == 1:
        joined[[_P50, _P95]] = rows[0, [_P50, _P95]]
        return joined
    values = rows[:, _PLACES].ravel()
    order = np.argsort(values)
    reached = np.cumsum((rows[:, [_N]] * _SHARES).ravel()[order]) / joined[_N]
    # what rounding takes from the sum must not push a quantile to the next value
    places = np.searchsorted(reached, np.array([0.5, 0.95]) - 1e-9)
    joined[[_P50, _P95]] = values[order][places]
    return joined
