"""The form of a chunk of samples: zstd of the times and then of the columns, one after the other.

Times are int64 milliseconds, each less the one before it (the first less that of the row); then comes a matrix of
float32 with a line per column, its bytes sorted by significance, which compresses to half. NaN stands where a sample
has no such value. Minutes have three matrices: lowest, highest and mean.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cache
from threading import local
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import zstandard

from metrics.packing import Floats

Matrix = npt.NDArray[np.float32]

ZSTD_LEVEL = 1
#: for chunks that are merged, off the road of ingest
ZSTD_LEVEL_COLD = 3
#: No chunk of ours comes near this; a damaged one must not take the process's memory.
LARGEST_CHUNK_BYTES = 512 * 1024 * 1024
MINUTE = 60.0
_TIME_BYTES = 8


class _Zstd(local):
    """The contexts of one thread: zstd's serve one at a time."""

    def __init__(self) -> None:
        self.compressor = cache(lambda level: zstandard.ZstdCompressor(level=level))
        self.decompressor = zstandard.ZstdDecompressor()


_zstd = _Zstd()


class Samples(NamedTuple):
    """Columns over time. `low`, `high` and `mean` are one and the same matrix for samples as they were taken."""

    times: Floats  # epoch seconds, ascending
    columns: Sequence[str]
    low: Matrix  # a line per column
    high: Matrix
    mean: Matrix

    @classmethod
    def taken(cls, times: Floats, columns: Sequence[str], values: Matrix) -> Samples:
        """As they were taken, in whatever order."""
        if len(times) > 1 and not (np.diff(times) >= 0).all():
            order = np.argsort(times, kind="stable")
            times, values = times[order], values[:, order]
        return cls(times, columns, values, values, values)


def pack(samples: Samples, first_time: float, level: int = ZSTD_LEVEL) -> bytes:
    """The data of a chunk whose row says `first_time`."""
    times = np.round((samples.times - first_time) * 1000).astype(np.int64)
    times = np.diff(times, prepend=0)
    matrices = [samples.mean] if samples.low is samples.mean else [samples.low, samples.high, samples.mean]
    content = b"".join([times.tobytes(), *(_shuffled(matrix) for matrix in matrices)])
    return _zstd.compressor(level).compress(content)


def unpack(data: bytes, first_time: float, points: int, columns: Sequence[str]) -> Samples:
    """The samples of a chunk. Raises ValueError when it is damaged."""
    content = _zstd.decompressor.decompress(data, max_output_size=LARGEST_CHUNK_BYTES)
    size = len(columns) * points * 4
    start = points * _TIME_BYTES
    steps = np.frombuffer(content, np.int64, points)
    times = first_time + np.cumsum(steps) / 1000.0
    count, rest = divmod(len(content) - start, size) if size else (0, 0)
    if rest or count not in (1, 3):
        raise ValueError(f"A chunk of {points} points of {len(columns)} columns has {len(content)} bytes.")
    matrices = [_restored(content, start + index * size, len(columns), points) for index in range(count)]
    low, high, mean = matrices if count == 3 else matrices * 3
    return Samples(times, columns, low, high, mean)


def chosen(samples: Samples, columns: frozenset[str], first_time: float, last_time: float) -> Samples | None:
    """Some of its columns within first_time <= time <= last_time; None where there is nothing of them."""
    lines = [index for index, column in enumerate(samples.columns) if column in columns]
    inside = slice(
        int(np.searchsorted(samples.times, first_time, "left")),
        int(np.searchsorted(samples.times, last_time, "right")),
    )
    times = samples.times[inside]
    if not lines or not len(times):
        return None
    names = [samples.columns[index] for index in lines]
    mean = samples.mean[lines, inside]
    if samples.low is samples.mean:
        return Samples(times, names, mean, mean, mean)
    return Samples(times, names, samples.low[lines, inside], samples.high[lines, inside], mean)


def _shuffled(matrix: Matrix) -> bytes:
    plain = np.ascontiguousarray(matrix, dtype=np.float32)
    return plain.view(np.uint8).reshape(-1, 4).T.tobytes()


def _restored(content: bytes, start: int, columns: int, points: int) -> Matrix:
    planes = np.frombuffer(content, np.uint8, columns * points * 4, start).reshape(4, -1)
    return np.ascontiguousarray(planes.T).view(np.float32).reshape(columns, points)


def joined(parts: Sequence[Samples]) -> Samples:
    """One after the other, sorted by time; columns that a part lacks are NaN there. `parts` are of one grain."""
    columns = list(dict.fromkeys(column for part in parts for column in part.columns))
    times = np.concatenate([part.times for part in parts])
    order = np.argsort(times, kind="stable")
    mean = _aligned(columns, [(part.columns, part.mean) for part in parts])[:, order]
    if all(part.low is part.mean for part in parts):
        return Samples(times[order], columns, mean, mean, mean)
    low = _aligned(columns, [(part.columns, part.low) for part in parts])[:, order]
    high = _aligned(columns, [(part.columns, part.high) for part in parts])[:, order]
    return Samples(times[order], columns, low, high, mean)


def _aligned(columns: Sequence[str], parts: Iterable[tuple[Sequence[str], Matrix]]) -> Matrix:
    place = {column: index for index, column in enumerate(columns)}
    aligned = []
    for own, matrix in parts:
        if list(own) != columns:
            wide = np.full((len(columns), matrix.shape[1]), np.nan, dtype=np.float32)
            wide[[place[column] for column in own]] = matrix
            matrix = wide
        aligned.append(matrix)
    return np.concatenate(aligned, axis=1)


def by_minute(samples: Samples) -> Samples:
    """Lowest, highest and mean of each minute that has a sample; its time is that of the middle of its samples."""
    starts, counts = runs_of(np.floor(samples.times / MINUTE))
    times = np.add.reduceat(samples.times, starts) / counts
    return Samples(
        times,
        samples.columns,
        np.fmin.reduceat(samples.low, starts, axis=1),
        np.fmax.reduceat(samples.high, starts, axis=1),
        _means(samples.mean, starts),
    )


def runs_of(labels: Floats) -> tuple[npt.NDArray[np.intp], npt.NDArray[np.intp]]:
    """Where each run of equal labels starts, and how long it is."""
    starts = np.concatenate([[0], np.flatnonzero(np.diff(labels)) + 1]).astype(np.intp)
    return starts, np.diff(starts, append=len(labels)).astype(np.intp)


def _means(values: Matrix, starts: npt.NDArray[np.intp]) -> Matrix:
    known = ~np.isnan(values)
    sums = np.add.reduceat(np.where(known, values, 0.0).astype(np.float64), starts, axis=1)
    counts = np.add.reduceat(known.astype(np.int64), starts, axis=1)
    with np.errstate(invalid="ignore", divide="ignore"):
        return (sums / counts).astype(np.float32)
