"""The form of a chunk: zstd of `<header JSON>\\n<text>`, where the text is the exact bytes, each line with its newline.

The header names runs, which are lines of one source, rank and stream that were read together. It has them as
columns, since those compress: `sources` is [[member id|null, host]…], and of each run `source` is the index in
it, `time` the host clock in microseconds (less that of the run before), `rank`, `lines` and `bytes` its size.
`stream` has a letter a run, `levels` a digit a line (logs.levels; absent when no line states one), and `cut`
are the indices of lines that the next line of their rank and stream goes on.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cache
from threading import local
from typing import Any, NamedTuple

import zstandard

from logs.levels import Level, mask_of
from logs.lines import NO_RANK, SERVER, STREAM_LETTERS, Block, mask_of_streams, raw

LINES_PER_CHUNK = 4000
BYTES_PER_CHUNK = 256 * 1024  # of text; a longer line is a chunk by itself
#: As lines come in: level 1 packs this text as well as 3 does, in three quarters of the time.
ZSTD_LEVEL = 1
#: For chunks that are merged when they are cold: a tenth less for eight times the work, off the road of ingest.
ZSTD_LEVEL_COLD = 9
LARGEST_RANK = 2**31 - 1
#: No chunk that we wrote comes near this; a damaged one must not take the process's memory.
LARGEST_CHUNK_BYTES = 512 * 1024 * 1024
_MICROSECONDS = 1_000_000
_LATEST_TIME = 1e11  # a clock beyond the year 5138 is broken

_DIGIT_OF_LEVEL = {level.name: ord(str(level.value)) for level in Level}


class _Zstd(local):
    """The contexts of one thread: zstd's serve one at a time."""

    def __init__(self) -> None:
        self.compressor = cache(lambda level: zstandard.ZstdCompressor(level=level))
        self.decompressor = zstandard.ZstdDecompressor()


_zstd = _Zstd()


class Source(NamedTuple):
    """Who wrote: a member's row id and its host's name as it was then; (None, "") is the server."""

    member_id: int | None
    host: str


class ChunkRun(NamedTuple):
    """Lines of a chunk that were read together. `time` is in microseconds; `levels` has a digit a line or is empty."""

    source: Source
    time: int
    rank: int | None
    stream: str
    lines: int
    levels: bytes
    cut: Sequence[int]
    text: bytes


@dataclass
class Packed:
    """A chunk without its number: the columns that reads choose by, and its data."""

    lines: int
    text_bytes: int
    members: list[int]
    hosts: list[str]
    ranks: list[int]
    kinds: int
    first_time: float
    last_time: float
    #: rank -> (lines, last time) of what it wrote itself; -1 stands for lines outside any rank
    written: dict[int, tuple[int, float]]
    data: bytes = field(repr=False)


def pack(source: Source, blocks: Iterable[Block]) -> Iterator[Packed]:
    """Chunks of one source's lines, in their order."""
    return pack_runs((_run(source, block) for block in blocks), ZSTD_LEVEL)


def pack_runs(runs: Iterable[ChunkRun], zstd_level: int) -> Iterator[Packed]:
    """Chunks as large as they may be of these runs, in their order."""
    together: list[ChunkRun] = []
    lines = size = 0
    for run in _within_limits(runs):
        if together and (lines + run.lines > LINES_PER_CHUNK or size + len(run.text) > BYTES_PER_CHUNK):
            yield _packed(together, zstd_level)
            together, lines, size = [], 0, 0
        together.append(run)
        lines += run.lines
        size += len(run.text)
    if together:
        yield _packed(together, zstd_level)


def _run(source: Source, block: Block) -> ChunkRun:
    """The block as it is stored. A line is never refused for its fields: odd ones become what they can."""
    text = raw(block.text) + b"\n"
    lines = text.count(b"\n")
    levels = bytearray()
    for index, name in block.levels:
        if 0 <= index < lines and name in _DIGIT_OF_LEVEL:
            levels = levels or bytearray(b"0" * lines)
            levels[index] = _DIGIT_OF_LEVEL[name]
    time = block.time if math.isfinite(block.time) and abs(block.time) < _LATEST_TIME else 0.0
    rank = block.rank if type(block.rank) is int and 0 <= block.rank <= LARGEST_RANK else None
    cut = [index for index in block.cut if 0 <= index < lines] if block.cut else ()
    stream = STREAM_LETTERS[block.stream]
    return ChunkRun(source, round(time * _MICROSECONDS), rank, stream, lines, bytes(levels), cut, text)


def _within_limits(runs: Iterable[ChunkRun]) -> Iterator[ChunkRun]:
    for run in runs:
        while run.lines > LINES_PER_CHUNK or (len(run.text) > BYTES_PER_CHUNK and run.lines > 1):
            part, run = _divided(run)
            yield part
        yield run


def _divided(run: ChunkRun) -> tuple[ChunkRun, ChunkRun]:
    """The run in two, the first of which is within the limits or a single line."""
    *_, rest = run.text.split(b"\n", min(LINES_PER_CHUNK, run.lines - 1))
    end = len(run.text) - len(rest)
    if end > BYTES_PER_CHUNK:
        end = run.text.rfind(b"\n", 0, BYTES_PER_CHUNK) + 1 or run.text.index(b"\n") + 1
    lines = run.text.count(b"\n", 0, end)
    first = run._replace(
        lines=lines, levels=run.levels[:lines], text=run.text[:end], cut=[i for i in run.cut if i < lines]
    )
    second = run._replace(
        lines=run.lines - lines,
        levels=run.levels[lines:],
        text=run.text[end:],
        cut=[i - lines for i in run.cut if i >= lines],
    )
    return first, second


def _packed(runs: Sequence[ChunkRun], zstd_level: int) -> Packed:
    content = b"".join([_header(runs), b"\n", *(run.text for run in runs)])
    sources = {run.source for run in runs}
    times = [run.time for run in runs]
    return Packed(
        lines=sum(run.lines for run in runs),
        text_bytes=sum(len(run.text) for run in runs),
        members=sorted({source.member_id for source in sources if source.member_id is not None}),
        hosts=sorted({source.host for source in sources}),
        ranks=sorted({NO_RANK if run.rank is None else run.rank for run in runs}),
        kinds=_kinds(runs),
        first_time=min(times) / _MICROSECONDS,
        last_time=max(times) / _MICROSECONDS,
        written=_written(runs),
        data=_zstd.compressor(zstd_level).compress(content),
    )


def _header(runs: Sequence[ChunkRun]) -> bytes:
    sources = {source: index for index, source in enumerate(dict.fromkeys(run.source for run in runs))}
    times = [run.time for run in runs]
    header: dict[str, Any] = {
        "sources": list(sources),
        "source": [sources[run.source] for run in runs],
        "time": [now - before for before, now in zip([0, *times], times, strict=False)],
        "rank": [run.rank for run in runs],
        "stream": "".join(run.stream for run in runs),
        "lines": [run.lines for run in runs],
        "bytes": [len(run.text) for run in runs],
    }
    if any(run.levels for run in runs):
        header["levels"] = b"".join(run.levels or b"0" * run.lines for run in runs).decode()
    cut, start = [], 0
    for run in runs:
        cut += [start + index for index in run.cut]
        start += run.lines
    if cut:
        header["cut"] = cut
    return json.dumps(header, separators=(",", ":")).encode()


def _written(runs: Sequence[ChunkRun]) -> dict[int, tuple[int, float]]:
    written: dict[int, tuple[int, float]] = {}
    for run in runs:
        if run.stream != SERVER:  # the server is no rank
            rank = NO_RANK if run.rank is None else run.rank
            lines, last = written.get(rank, (0, -math.inf))
            written[rank] = (lines + run.lines, max(last, run.time / _MICROSECONDS))
    return written


def _kinds(runs: Sequence[ChunkRun]) -> int:
    digits = {digit for run in runs for digit in (set(run.levels) if run.levels else b"0")}
    return mask_of(Level(digit - ord("0")) for digit in digits) | mask_of_streams(
        {run.stream for run in runs}
    )


def unpack(data: bytes | memoryview) -> bytes:
    """Header and text of a chunk's `data`."""
    return _zstd.decompressor.decompress(data, max_output_size=LARGEST_CHUNK_BYTES)
