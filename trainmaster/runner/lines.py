"""Bytes of a stream in, lines out: pure, so that a runner started anew at any line goes on as if never stopped.

A line ends at `\\n` or `\\r\\n`. A text that ends at a lone `\\r` is one state of a progress bar: what follows on the
terminal overwrites it. Of such states the last one per interval is kept, and one that nothing overwrites.
"""

from __future__ import annotations

import re
from typing import Iterator, List, NamedTuple, Optional, Tuple

PROGRESS_SECONDS = 1.0

_LEVELS = {
    "DEBUG": "DEBUG",
    "INFO": "INFO",
    "WARN": "WARNING",
    "WARNING": "WARNING",
    "ERROR": "ERROR",
    "CRITICAL": "CRITICAL",
    "FATAL": "CRITICAL",
}
_WORD = rb"(DEBUG|INFO|WARNING|WARN|ERROR|CRITICAL|FATAL)"
_LEVEL_FIRST = re.compile(rb"\s?(?:" + _WORD + rb":|\[" + _WORD + rb"\])")
_LEVEL_AFTER_TIME = re.compile(
    rb"\s?\[?(?:\d{4}[-/]\d\d[-/]\d\d[T ])?\d\d:\d\d:\d\d[\d.,]*(?:Z|[+-]\d\d:?\d\d)?\]?"
    rb"[\s:|-]*(?:[\w.:\[\]]+[ ]?[|-]?[ ]?){0,2}?\[?\b" + _WORD + rb"\b"
)
_GLOG = re.compile(rb"([DIWEF])\d{4} \d\d:\d\d:\d\d\.\d+ ")  # torch's own loggers
_GLOG_LEVELS = {b"D": "DEBUG", b"I": "INFO", b"W": "WARNING", b"E": "ERROR", b"F": "CRITICAL"}
_RANK = re.compile(rb"\s?\[rank=(\d{1,9})\]\s?")
_PREFIX_BYTES = 200  # how far into a line a level is looked for


class Line(NamedTuple):
    """One line: its bytes without the ending, the offset just behind it, and whether the next one continues it."""

    text: bytes
    end: int
    cut: bool


class LineSplitter:
    """Splits one stream. `offset` is where its next byte lies; `after_cr` if the byte before was a `\\r`."""

    def __init__(self, offset: int, line_bytes: int, after_cr: bool = False) -> None:
        self.limit = line_bytes
        self._start = offset  # where _rest begins in the stream
        self._rest = b""
        self._after_cr = after_cr  # a progress state was ended by a `\\r` that may turn out to be a `\\r\\n`
        self._state: Optional[Line] = None  # the progress state that nothing has overwritten yet
        self._last_state = -PROGRESS_SECONDS

    @property
    def offset(self) -> int:
        """Where the next byte to be fed lies in the stream."""
        return self._start + len(self._rest)

    def feed(self, data: bytes, now: float) -> List[Line]:
        """The lines that `data` completes; `now` in monotonic seconds."""
        lines: List[Line] = []
        if self._after_cr and data:
            self._after_cr = False
            if data.startswith(b"\n"):
                data = data[1:]
                self._start += 1
                if self._state is not None:
                    lines.append(self._state._replace(end=self._start))
                    self._state = None
        data = self._rest + data
        split = self._split_with_progress if b"\r" in data else self._split
        consumed = split(data, lines)
        self._start += consumed
        self._rest = data[consumed:]
        while len(self._rest) > self.limit:
            size = cut_at(self._rest, self.limit)
            self._start += size
            lines.append(Line(self._rest[:size], self._start, True))
            self._rest = self._rest[size:]
            self._state = None
        return lines + self._due_state(now)

    def idle(self, now: float) -> List[Line]:
        """The progress state that is due although nothing new came."""
        self._end_trailing_state()
        return self._due_state(now)

    def finish(self) -> List[Line]:
        """All that is left when the stream has ended: the last progress state, or a line without its `\\n`."""
        self._end_trailing_state()
        if self._rest:
            self._start += len(self._rest)
            self._state = Line(self._rest, self._start, False)
            self._rest = b""
        state, self._state = self._state, None
        return [state] if state else []

    def _split(self, data: bytes, lines: List[Line]) -> int:
        """The fast way, for data without any `\\r`."""
        texts = data.split(b"\n")
        texts.pop()
        end = self._start
        for text in texts:
            start, end = end, end + len(text) + 1
            if len(text) <= self.limit:
                lines.append(Line(text, end, False))
            else:
                lines.extend(_pieces(text, start, end, self.limit))
        if texts:
            self._state = None
        return end - self._start

    def _split_with_progress(self, data: bytes, lines: List[Line]) -> int:
        consumed = 0
        for start, stop, after, progress in _segments(data):
            consumed = after
            text, end = data[start:stop], self._start + after
            if not progress and not text and self._state is not None:
                lines.append(self._state._replace(end=end))  # nothing overwrote it: the newline is its own
                self._state = None
            elif not progress:
                lines.extend(_pieces(text, self._start + start, end, self.limit))
                self._state = None
            elif text:
                self._state = Line(_clipped(text, self.limit), end, False)
            elif self._state is not None:
                self._state = self._state._replace(end=end)
        return consumed

    def _end_trailing_state(self) -> None:
        """A `\\r` is the last byte so far: take it for a progress state's end."""
        if not self._rest.endswith(b"\r"):
            return
        text = self._rest[:-1]
        self._start += len(self._rest)
        self._rest = b""
        self._after_cr = True
        if text:
            self._state = Line(_clipped(text, self.limit), self._start, False)

    def _due_state(self, now: float) -> List[Line]:
        if self._state is None or now - self._last_state < PROGRESS_SECONDS:
            return []
        state, self._state = self._state, None
        self._last_state = now
        return [state]


def _pieces(text: bytes, start: int, end: int, limit: int) -> Iterator[Line]:
    """The line `text`, which begins at `start`, in pieces of at most `limit`; the last one ends where it ends."""
    while len(text) > limit:
        size = cut_at(text, limit)
        start += size
        yield Line(text[:size], start, True)
        text = text[size:]
    yield Line(text, end, False)


def _clipped(text: bytes, limit: int) -> bytes:
    return text if len(text) <= limit else text[: cut_at(text, limit)]


def _segments(data: bytes) -> Iterator[Tuple[int, int, int, bool]]:
    """(start, stop, position behind the ending, is a progress state) of each ended segment.

    A `\\r` that is the last byte is left for later: a `\\n` may follow it.
    """
    start = 0
    for match in re.finditer(rb"\r\n|\n|\r(?!\Z)", data):
        ending = match.group()
        yield start, match.start(), match.end(), ending == b"\r"
        start = match.end()


def cut_at(text: bytes, limit: int) -> int:
    """The largest size up to `limit` at which no UTF-8 character of `text` is split."""
    size = limit
    while size > max(0, limit - 3) and text[size] & 0xC0 == 0x80:
        size -= 1
    return size if size > 0 and text[size] & 0xC0 != 0x80 else limit


def level_of(text: bytes) -> Optional[str]:
    """The level that a line states at its start or behind a timestamp."""
    head = text[:_PREFIX_BYTES]
    match = _LEVEL_FIRST.match(head)
    if match:
        return _LEVELS[(match.group(1) or match.group(2)).decode()]
    glog = _GLOG.match(head)
    if glog:
        return _GLOG_LEVELS[glog.group(1)]
    match = _LEVEL_AFTER_TIME.match(head)
    return _LEVELS[match.group(1).decode()] if match else None


def rank_prefix(text: bytes) -> Tuple[Optional[int], bytes]:
    """(rank, text without it) for a line that begins with `[rank=N] `; (None, text) for any other."""
    match = _RANK.match(text)
    return (int(match.group(1)), text[match.end() :]) if match else (None, text)
