"""A log as the bytes that were written, read block by block."""

from __future__ import annotations

import time
from collections.abc import Generator, Iterable, Iterator

from logs import read
from logs.chunks import Source
from logs.contents import Piece
from logs.filters import Filters

#: What is gathered for one block, and for how long, where chunks are small or few lines are wanted.
BLOCK_BYTES, BLOCK_SECONDS = 256 * 1024, 0.2
#: Pieces of cut lines that wait for their end while others write in between; beyond it they are written as they are.
HELD_BYTES_MAX = 64 * 1024 * 1024

#: Who wrote: source, rank, stream.
Writer = tuple[Source, int | None, str]


class Joiner:
    """Gives lines back the bytes that were written: one that was cut stands whole, where its end came."""

    def __init__(self) -> None:
        self._held: dict[Writer, list[bytes]] = {}
        self._held_bytes = 0

    def join(self, pieces: Iterable[Piece]) -> Iterator[tuple[Writer, bytes]]:
        """The bytes of whole lines, each with its newline, and who wrote them."""
        for piece in pieces:
            data = piece.data
            if piece.cut:
                begin = data.rfind(b"\n") + 1
                data, rest = data[:begin], data[begin:]
            if data:
                if before := self._held.pop(piece.source, None):
                    self._held_bytes -= sum(map(len, before))
                    data = b"".join([*before, data])
                yield piece.source, data
            if piece.cut:
                self._held.setdefault(piece.source, []).append(rest)
                self._held_bytes += len(rest)
                if self._held_bytes > HELD_BYTES_MAX:
                    yield from self.rest()

    def rest(self) -> Iterator[tuple[Writer, bytes]]:
        """What still waits for its end."""
        held, self._held, self._held_bytes = self._held, {}, 0
        for writer, parts in held.items():
            yield writer, b"".join(parts) + b"\n"


def written(task_id: str, filters: Filters | None) -> Generator[bytes]:
    """The bytes of the lines that the filters leave, up to the newest one when it begins; none without filters.

    In blocks, and an empty one now and then where a search is long.
    """
    if filters is None:
        return
    joiner = Joiner()
    block: list[bytes] = []
    size, until = 0, time.monotonic() + BLOCK_SECONDS
    for pieces in read.pieces(task_id, filters):
        for _, data in joiner.join(pieces):
            block.append(data)
            size += len(data)
        if size > BLOCK_BYTES or time.monotonic() > until:
            yield b"".join(block)
            block, size, until = [], 0, time.monotonic() + BLOCK_SECONDS
    yield b"".join([*block, *(data for _, data in joiner.rest())])
