"""A log as a file: exact bytes, read block by block without a thread or a connection between them."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Generator, Iterable, Iterator
from contextlib import suppress

from logs import read
from logs.chunks import Source
from logs.contents import Piece
from logs.filters import Filters
from webui.waiting.threads import catching_up

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


def blocks(task_id: str, filters: Filters) -> AsyncIterator[bytes]:
    """Yield the bytes of filtered lines for a streamed answer. Raises Refusal, and what the database raises."""
    return stepped(written(task_id, filters))


async def stepped(parts: Generator[bytes]) -> AsyncIterator[bytes]:
    """The parts of a generator that reads the database; a thread is held for one step at a time, and none of those
    that look at what is new."""
    try:
        while (part := await catching_up(next, parts, None)) is not None:
            if part:
                yield part
    finally:
        with suppress(ValueError):  # a step that still runs in its thread ends there
            parts.close()
