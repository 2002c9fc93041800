"""The form of a chunk: JSON lines in zstd. A line is `[time, rank|null, "o"|"e"|"s", level|null, text]`."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from json.encoder import encode_basestring
from threading import local

import zstandard

from logs.levels import bit_of, stored_name
from logs.lines import NO_RANK, STREAM_LETTERS, Line, NewLine
from logs.models import Chunk

LINES_PER_CHUNK = 1000
ZSTD_LEVEL = 3
LARGEST_RANK = 2**31 - 1
#: No chunk that we wrote comes near this; a damaged one must not take the process's memory.
LARGEST_CHUNK_BYTES = 512 * 1024 * 1024

_per_thread = local()  # a zstd context serves one thread at a time


def _compressor() -> zstandard.ZstdCompressor:
    if not hasattr(_per_thread, "compressor"):
        _per_thread.compressor = zstandard.ZstdCompressor(level=ZSTD_LEVEL)
    compressor: zstandard.ZstdCompressor = _per_thread.compressor
    return compressor


def _decompressor() -> zstandard.ZstdDecompressor:
    if not hasattr(_per_thread, "decompressor"):
        _per_thread.decompressor = zstandard.ZstdDecompressor()
    decompressor: zstandard.ZstdDecompressor = _per_thread.decompressor
    return decompressor


def pack(task_id: str, first_line: int, member_id: int | None, host: str, lines: Sequence[NewLine]) -> Chunk:
    """An unsaved chunk of these lines, the first of which gets the number `first_line`."""
    rows: list[str] = []
    ranks: set[int] = set()
    levels = 0
    first_time, last_time = math.inf, -math.inf
    for time, rank, stream, level, text in lines:
        time, rank, level = _sound_time(time), _sound_rank(rank), stored_name(level)
        levels |= bit_of(level)
        ranks.add(NO_RANK if rank is None else rank)
        first_time, last_time = min(first_time, time), max(last_time, time)
        level_json = "null" if level is None else f'"{level}"'
        rank_json = "null" if rank is None else rank
        letter = STREAM_LETTERS[stream]
        rows.append(f'[{time!r},{rank_json},"{letter}",{level_json},{encode_basestring(text)}]')
    return Chunk(
        task_id=task_id,
        first_line=first_line,
        last_line=first_line + len(rows) - 1,
        member_id=member_id,
        host=host,
        first_time=first_time,
        last_time=last_time,
        ranks=sorted(ranks),
        levels=levels,
        data=_compressor().compress("\n".join(rows).encode("utf-8", "surrogatepass")),
    )


def _sound_time(time: float) -> float:
    return float(time) if math.isfinite(time) else 0.0


def _sound_rank(rank: object) -> int | None:
    """What came over the wire as a rank, or None: a line is never refused for its fields."""
    return rank if type(rank) is int and 0 <= rank <= LARGEST_RANK else None


def unpack(data: bytes | memoryview) -> bytes:
    """The JSON lines of a chunk's `data`, joined by newlines (which stand nowhere else in them)."""
    return _decompressor().decompress(data, max_output_size=LARGEST_CHUNK_BYTES)


def decode(content: bytes, first_line: int, host: str, member_id: int | None) -> list[Line]:
    """The lines of an unpacked chunk."""
    rows = json.loads((b"[" + content.replace(b"\n", b",") + b"]").decode("utf-8", "surrogatepass"))
    return [
        Line(number, time, rank, stream, level, text, host, member_id)
        for number, (time, rank, stream, level, text) in enumerate(rows, first_line)
    ]
