"""Bytes of a stream in, blocks of its lines out. Pure: one started anew behind any block goes on as if never stopped.

A line ends at `\\n` or `\\r\\n`. A text that ends at a lone `\\r` is one state of a progress bar: what follows on the
terminal overwrites it. Of such states the last one per interval is kept, and one that nothing overwrites.
"""

from __future__ import annotations

import re
from typing import Iterator, List, NamedTuple, Optional, Tuple

PROGRESS_SECONDS = 1.0
BLOCK_BYTES = 64 * 1024

#: `[rank=3] ` of wrap_rank, `[rank3]: ` of PyTorch, `[1,3]<stdout>:` of mpirun, `[3]<stdout>:` of horovodrun
_RANK = re.compile(rb"[ \t]?\[(?:rank=?(\d{1,9})\]:?|(?:\d{1,9},)?(\d{1,9})\]<std(?:out|err)>:)[ \t]?")


class Block(NamedTuple):
    """Lines that were read together: their bytes joined by `\\n`, and the offset just behind them in the stream.

    With `cut` the last line goes on in the next block; one that `continues` a line is that piece alone. The text of
    more than one line stands in the stream as it is here, so it may hold progress states: see `shown`.
    """

    text: bytes
    end: int
    cut: bool = False
    continues: bool = False


class LineSplitter:
    """Splits one stream. `offset` is where its next byte lies, `before` the byte before that (empty at the start).

    Lines above `line_bytes` are cut; a block holds at most `block_bytes` unless its one line is longer, so with
    0 each line is a block of its own.
    """

    def __init__(
        self, offset: int, line_bytes: int, before: bytes = b"", block_bytes: int = BLOCK_BYTES
    ) -> None:
        self.limit = line_bytes
        self._block_bytes = block_bytes
        self.start = offset  # where that begins which has not ended yet: _rest
        self._rest = b""
        #: a progress state was ended by a `\r` that may turn out to be a `\r\n`
        self._after_cr = before == b"\r"
        self._in_line = before not in (b"", b"\r", b"\n")  # what comes next continues a line that was cut
        self._state: Optional[Block] = None  # the progress state that nothing has overwritten yet
        self._last_state = -PROGRESS_SECONDS

    @property
    def offset(self) -> int:
        """Where the next byte to be fed lies in the stream."""
        return self.start + len(self._rest)

    def feed(self, data: bytes, now: float) -> List[Block]:
        """The lines that `data` completes; `now` in monotonic seconds."""
        blocks: List[Block] = []
        data = self._rest + self._without_newline_of_state(data, blocks)
        consumed = self._ended_lines(data, blocks)
        consumed = self._progress(data, consumed)
        self.start += consumed
        self._rest = data[consumed:]
        while len(self._rest) > self.limit:
            size = cut_at(self._rest, self.limit)
            self.start += size
            blocks.append(Block(self._rest[:size], self.start, True, self._in_line))
            self._rest = self._rest[size:]
            self._in_line = True
            self._state = None
        return blocks + self._due_state(now)

    def idle(self, now: float) -> List[Block]:
        """The progress state that is due although nothing new came."""
        self._end_trailing_state()
        return self._due_state(now)

    def finish(self) -> List[Block]:
        """All that is left when the stream has ended: the last progress state, or a line without its `\\n`."""
        self._end_trailing_state()
        if self._rest:
            self.start += len(self._rest)
            self._state = Block(self._rest, self.start, False, self._in_line)
            self._rest, self._in_line = b"", False
        state, self._state = self._state, None
        return [state] if state else []

    def _without_newline_of_state(self, data: bytes, blocks: List[Block]) -> bytes:
        if not self._after_cr or not data:
            return data
        self._after_cr = False
        if not data.startswith(b"\n"):
            return data
        self.start += 1
        if self._state is not None:
            blocks.append(self._state._replace(end=self.start))
            self._state = None
        return data[1:]

    def _ended_lines(self, data: bytes, blocks: List[Block]) -> int:
        """Add the lines of `data` that have ended; returns the position behind them."""
        at = 0
        if self._in_line or self._state is not None:
            at = data.find(b"\n") + 1
            if at:
                self._first_line(data[: at - 1], self.start + at, blocks)
        while True:
            stop = data.rfind(b"\n", at, at + self._block_bytes) + 1 or data.find(b"\n", at) + 1
            if not stop:
                return at
            text, end = data[at : stop - 1], self.start + stop
            if _all_within(text, self.limit):
                blocks.append(Block(text, end))
            else:
                blocks.extend(_with_long_lines(text, end, self.limit))
            at = stop

    def _first_line(self, text: bytes, end: int, blocks: List[Block]) -> None:
        """A line that continues one that was cut, or that ends a progress state or overwrites it."""
        if self._state is not None and not text.strip(b"\r"):
            blocks.append(self._state._replace(end=end))  # nothing overwrote it: the newline is its own
        else:
            blocks.extend(_pieces(text, end, self.limit, self._in_line))
        self._state, self._in_line = None, False

    def _progress(self, data: bytes, at: int) -> int:
        """Take what stands from `at` on, behind the last line, up to its last `\\r` for progress states.

        A `\\r` that is the very last byte is left for later: a `\\n` may follow it.
        """
        stop = data.rfind(b"\r", at, len(data) - 1) + 1
        if not stop:
            return at
        state = _last_state(data[at:stop])
        if state:
            self._state = Block(self._clipped(state), self.start + stop, False, self._in_line)
            self._in_line = False
        elif self._state is not None:
            self._state = self._state._replace(end=self.start + stop)
        return stop

    def _end_trailing_state(self) -> None:
        """A `\\r` is the last byte so far: take it for a progress state's end."""
        if not self._rest.endswith(b"\r"):
            return
        text = self._rest[:-1]
        self.start += len(self._rest)
        self._rest = b""
        self._after_cr = True
        if text:
            self._state = Block(self._clipped(text), self.start, False, self._in_line)
            self._in_line = False

    def _due_state(self, now: float) -> List[Block]:
        if self._state is None or now - self._last_state < PROGRESS_SECONDS:
            return []
        state, self._state = self._state, None
        self._last_state = now
        return [state]

    def _clipped(self, text: bytes) -> bytes:
        return text if len(text) <= self.limit else text[: cut_at(text, self.limit)]


def shown(text: bytes) -> bytes:
    """The lines with what a terminal shows of each in the end: without what a `\\r` let be overwritten."""
    if b"\r" not in text:
        return text
    return b"\n".join(_last_state(line) for line in text.split(b"\n"))


def _last_state(line: bytes) -> bytes:
    return line.rstrip(b"\r").rpartition(b"\r")[2]


def _all_within(text: bytes, limit: int) -> bool:
    """True if no line of `text` is longer than `limit`."""
    at = 0
    while len(text) - at > limit:
        at = text.rfind(b"\n", at, at + limit + 1) + 1
        if not at:
            return False
    return True


def _with_long_lines(text: bytes, end: int, limit: int) -> Iterator[Block]:
    """Each line on its own, and in pieces where it is too long."""
    at = end - len(text) - 1
    for line in text.split(b"\n"):
        at += len(line) + 1
        yield from _pieces(line, at, limit, False)


def _pieces(line: bytes, end: int, limit: int, continues: bool) -> Iterator[Block]:
    """The line that ends, with its newline, at `end`, in pieces of at most `limit`."""
    text = _last_state(line)
    at = end - 1 - len(line) + line.rfind(text)
    while len(text) > limit:
        size = cut_at(text, limit)
        at += size
        yield Block(text[:size], at, True, continues)
        text, continues = text[size:], True
    yield Block(text, end, False, continues)


def cut_at(text: bytes, limit: int) -> int:
    """The largest size up to `limit` at which no UTF-8 character of `text` is split."""
    size = limit
    while size > max(0, limit - 3) and text[size] & 0xC0 == 0x80:
        size -= 1
    return size if size > 0 and text[size] & 0xC0 != 0x80 else limit


def rank_runs(block: Block) -> Iterator[Tuple[Optional[int], bytes, int]]:
    """(rank, lines, offset behind them) of each run of lines with the same rank, told by the prefix of a launcher.

    The prefix leaves the lines; a line without it has the rank None.
    """
    if b"[rank" not in block.text and b"]<std" not in block.text:
        yield None, block.text, block.end
        return
    lines = block.text.split(b"\n")
    at = block.end - len(block.text) - 1
    run: List[bytes] = []
    rank, end = None, at
    for line in lines:
        its_rank, text = rank_prefix(line)
        if run and its_rank != rank:
            yield rank, b"\n".join(run), end
            run = []
        rank, end = its_rank, end + len(line) + 1
        run.append(text)
    yield rank, b"\n".join(run), block.end


def rank_prefix(text: bytes) -> Tuple[Optional[int], bytes]:
    """(rank, text without it) for a line that begins with a prefix that names its rank; (None, text) for any other."""
    match = _RANK.match(text)
    return (int(match.group(match.lastindex or 0)), text[match.end() :]) if match else (None, text)
