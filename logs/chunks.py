"""The form of a chunk: a JSON array in zstd of lines `[time, rank|null, "o"|"e"|"s", level|null, text]`."""

from __future__ import annotations

import json
from collections.abc import Sequence
from math import isfinite
from threading import local

import zstandard

from logs.levels import STORED_NAMES, mask_of_names
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
    rows = [
        (
            time if isfinite(time) else 0.0,
            _sound_rank(rank),
            STREAM_LETTERS[stream],
            level if level in STORED_NAMES else None,
            text,
        )
        for time, rank, stream, level, text in lines
    ]
    times = [row[0] for row in rows]
    ranks = {row[1] for row in rows}
    content = json.dumps(rows, ensure_ascii=False, check_circular=False, separators=(",", ":"))
    return Chunk(
        task_id=task_id,
        first_line=first_line,
        last_line=first_line + len(rows) - 1,
        member_id=member_id,
        host=host,
        first_time=min(times),
        last_time=max(times),
        ranks=sorted(NO_RANK if rank is None else rank for rank in ranks),
        levels=mask_of_names({row[3] for row in rows}),
        data=_compressor().compress(content.encode("utf-8", "surrogatepass")),
    )


def _sound_rank(rank: object) -> int | None:
    """What came over the wire as a rank, or None: a line is never refused for its fields."""
    return rank if type(rank) is int and 0 <= rank <= LARGEST_RANK else None


def unpack(data: bytes | memoryview) -> bytes:
    """The JSON of a chunk's `data`."""
    return _decompressor().decompress(data, max_output_size=LARGEST_CHUNK_BYTES)


def decode(content: bytes, first_line: int, host: str, member_id: int | None) -> list[Line]:
    """The lines of an unpacked chunk."""
    rows = json.loads(content.decode("utf-8", "surrogatepass"))
    return [
        Line(number, time, rank, stream, level, text, host, member_id)
        for number, (time, rank, stream, level, text) in enumerate(rows, first_line)
    ]
