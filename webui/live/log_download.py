"""A log as a file: exact bytes, read block by block without a thread or a connection between them."""

from __future__ import annotations

from collections.abc import AsyncIterator, Generator, Iterable
from contextlib import suppress

from logs import read
from logs.filters import Filters
from logs.lines import Line, raw
from webui.live.threads import reading

LINES_PER_BLOCK = 5000
#: Pieces of cut lines that wait for their end while others write in between; beyond it they are written as they are.
HELD_BYTES_MAX = 64 * 1024 * 1024

Source = tuple[int | None, int | None, str]  # member, rank, stream


class Joiner:
    """Gives lines back the bytes that were written: one that was cut stands whole, where its end came."""

    def __init__(self) -> None:
        self._held: dict[Source, list[bytes]] = {}
        self._held_bytes = 0

    def join(self, lines: Iterable[Line]) -> bytes:
        """The bytes of whole lines, each with its newline."""
        done: list[bytes] = []
        for line in lines:
            text = raw(line.text)
            if line.cut:
                self._hold((line.member, line.rank, line.stream), text)
                if self._held_bytes > HELD_BYTES_MAX:
                    done.append(self.rest())
            elif self._held and (before := self._held.pop((line.member, line.rank, line.stream), None)):
                self._held_bytes -= sum(map(len, before))
                done += [*before, text, b"\n"]
            else:
                done += [text, b"\n"]
        return b"".join(done)

    def rest(self) -> bytes:
        """What still waits for its end."""
        held = [b"".join(pieces) + b"\n" for pieces in self._held.values()]
        self._held, self._held_bytes = {}, 0
        return b"".join(held)

    def _hold(self, source: Source, text: bytes) -> None:
        self._held.setdefault(source, []).append(text)
        self._held_bytes += len(text)


def pages(task_id: str, filters: Filters, end: int) -> Generator[list[Line]]:
    """The lines up to number `end` that the filters leave, some thousands at a time, or none where a search is long."""
    after = 0
    while after < end:
        page = read.forward(task_id, after, filters, LINES_PER_BLOCK)
        yield [line for line in page.lines if line.number <= end]
        after = page.upto


def written(task_id: str, filters: Filters | None) -> Generator[bytes]:
    """The bytes of the lines that the filters leave, up to the newest one when it begins; none without filters."""
    if filters is None:
        return
    joiner = Joiner()
    for lines in pages(task_id, filters, read.last_number(task_id)):
        yield joiner.join(lines)
    yield joiner.rest()


def blocks(task_id: str, filters: Filters) -> AsyncIterator[bytes]:
    """The same for an answer that is streamed. Raises filters.PatternTooSlow, and what the database raises."""
    return stepped(written(task_id, filters))


async def stepped(parts: Generator[bytes]) -> AsyncIterator[bytes]:
    """The parts of a generator that reads the database; a thread is held for one step at a time."""
    try:
        while (part := await reading(next, parts, None)) is not None:
            if part:
                yield part
    finally:
        with suppress(ValueError):  # a step that still runs in its thread ends there
            parts.close()
