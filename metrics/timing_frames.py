"""The form in which timings are stored: frames one behind the other, one for each record of a rank, as they came in or
all together in zstd (`metrics.timing_store.merge_due`). Pure.

A frame is its size, the size of its names, both times (float64), both steps (int64), the names as JSON
`[timings, counts]`, then float32: six for each timing (FIELDS), one for each count. Names of a training hardly ever
change, so equal ones are read once.
"""

from __future__ import annotations

import json
import math
import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import zstandard

from metrics.sample_chunks import LARGEST_CHUNK_BYTES

FIELDS = ("n", "sum", "min", "max", "p50", "p95")
NAME_CHARACTERS = 128
MOST_NAMES = 256

_SIZES = struct.Struct("<II")
_HEAD = struct.Struct("<IIddqq")
_LARGEST = float(np.finfo(np.float32).max)
_LATEST = 1e11  # epoch seconds
_LARGEST_STEP = 2**53
_LARGEST_RANK = 2**31 - 1
_ZSTD_LEVEL = 3
#: no frame starts so: it would be larger than any chunk
_ZSTD_MAGIC = b"\x28\xb5\x2f\xfd"


@dataclass(frozen=True)
class Frame:
    """What one rank timed between two times: `values` has a row of FIELDS for each of `names`, `counts` sums."""

    rank: int
    first_time: float
    last_time: float
    first_step: int
    last_step: int
    names: tuple[str, ...]
    values: npt.NDArray[np.float32]
    counted: tuple[str, ...]
    counts: npt.NDArray[np.float32]


@dataclass(frozen=True)
class Frames:
    """Frames with the same names, as columns: `values` is frame x name x FIELDS, `counts` frame x name."""

    first_time: npt.NDArray[np.float64]
    last_time: npt.NDArray[np.float64]
    first_step: npt.NDArray[np.int64]
    last_step: npt.NDArray[np.int64]
    names: tuple[str, ...]
    values: npt.NDArray[np.float32]
    counted: tuple[str, ...]
    counts: npt.NDArray[np.float32]


#: names as they are written -> names of timings, of counts, and the form of a frame that has them
Known = dict[bytes, tuple[tuple[str, ...], tuple[str, ...], np.dtype[Any]]]


def read_record(record: Mapping[str, Any]) -> Frame | None:
    """A `timings` record (docs/protocol.md); None when nothing of it can be read. Training code may have written it."""
    rank, times, steps = _whole(record.get("r"), _LARGEST_RANK), record.get("t"), record.get("s")
    if rank is None or not isinstance(times, list) or not isinstance(steps, list):
        return None
    if len(times) != 2 or len(steps) != 2:
        return None
    begin, end = (_number(at, _LATEST) for at in times)
    first, last = (_whole(step, _LARGEST_STEP) for step in steps)
    if begin is None or end is None or first is None or last is None or first > last:
        return None
    if not 0 <= begin <= end:
        return None
    timed = {name: row for name, said in _named(record.get("v")) if (row := _row(said)) is not None}
    totals = {name: total for name, said in _named(record.get("c")) if (total := _number(said)) is not None}
    if not timed and not totals:
        return None
    values = np.array(list(timed.values()), dtype=np.float32).reshape(-1, len(FIELDS))
    counts = np.array(list(totals.values()), dtype=np.float32)
    return Frame(rank, begin, end, first, last, tuple(timed), values, tuple(totals), counts)


def pack(frame: Frame) -> bytes:
    names = json.dumps([frame.names, frame.counted], ensure_ascii=False, separators=(",", ":")).encode()
    body = frame.values.astype("<f4").tobytes() + frame.counts.astype("<f4").tobytes()
    size = _HEAD.size + len(names) + len(body)
    times, steps = (frame.first_time, frame.last_time), (frame.first_step, frame.last_step)
    return _HEAD.pack(size, len(names), *times, *steps) + names + body


def compressed(frames: bytes) -> bytes:
    """The data of a chunk of these frames, as small as it gets."""
    return zstandard.ZstdCompressor(level=_ZSTD_LEVEL).compress(frames)


def content(data: bytes) -> bytes:
    """The frames of a chunk, whether it is compressed or not."""
    if not data.startswith(_ZSTD_MAGIC):
        return data
    return zstandard.ZstdDecompressor().decompress(data, max_output_size=LARGEST_CHUNK_BYTES)


def unpack(data: bytes, known: Known) -> Iterator[Frames]:
    """The frames of a chunk, neighbors with the same names together; `known` keeps names that were read before."""
    data, start = content(data), 0
    while start < len(data):
        size, names_size = _SIZES.unpack_from(data, start)
        said = data[start + _HEAD.size : start + _HEAD.size + names_size]
        if said not in known:
            names, counted = json.loads(said)
            known[said] = tuple(names), tuple(counted), _form(names_size, len(names), len(counted))
        names, counted, form = known[said]
        rows = np.frombuffer(data, form, offset=start, count=(len(data) - start) // size)
        others = np.flatnonzero((rows["size"] != size) | (rows["said"] != said))
        rows = rows[: others[0]] if len(others) else rows
        times, steps = (rows["first_time"], rows["last_time"]), (rows["first_step"], rows["last_step"])
        yield Frames(*times, *steps, names, rows["values"], counted, rows["counts"])
        start += size * len(rows)


def _form(names_size: int, names: int, counted: int) -> np.dtype[Any]:
    return np.dtype(
        [
            ("size", "<u4"), ("names_size", "<u4"), ("first_time", "<f8"), ("last_time", "<f8"),
            ("first_step", "<i8"), ("last_step", "<i8"), ("said", f"S{names_size}"),
            ("values", "<f4", (names, len(FIELDS))), ("counts", "<f4", (counted,)),
        ]
    )  # fmt: skip


def _named(values: object) -> list[tuple[str, Any]]:
    if not isinstance(values, dict):
        return []
    fits = [(name, said) for name, said in values.items() if 0 < len(name) <= NAME_CHARACTERS]
    return [(name, said) for name, said in fits if name.isprintable()][:MOST_NAMES]


def _row(said: object) -> list[float] | None:
    if not isinstance(said, dict):
        return None
    row = [_number(said.get(field)) for field in FIELDS]
    numbers = [number for number in row if number is not None]
    return numbers if len(numbers) == len(FIELDS) and numbers[0] > 0 and min(numbers) >= 0 else None


def _number(value: object, largest: float = _LARGEST) -> float | None:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    return float(value) if math.isfinite(value) and abs(value) <= largest else None


def _whole(value: object, largest: int) -> int | None:
    return value if type(value) is int and 0 <= value <= largest else None
