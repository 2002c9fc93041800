"""The one writer of timings as they come in. The stream's offset, which the caller moves, lets each batch in once."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from events.announce import announce
from metrics.chunks import cursor
from metrics.models import TimingChunk
from metrics.timing_frames import Frame, pack, read_record

#: a row is written anew with each of its frames, so it is short; metrics.timing_merging makes few of many
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
