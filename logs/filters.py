"""Which lines of a log are wanted."""

from __future__ import annotations

import time
from dataclasses import dataclass, field, replace
from typing import Any

import regex

from accounts.refusals import Refusal
from logs.chunks import Source
from logs.levels import Level, bit_of, mask_of
from logs.lines import NO_RANK, LogLine, shown, text_of
from logs.patterns import compiled

#: One line against one pattern; a pattern that needs longer is one that explodes.
PATTERN_SECONDS_PER_LINE = 0.1
#: All lines of one chunk against one pattern: a read that comes to several ends early instead.
PATTERN_SECONDS_PER_CHUNK = 2.0
PATTERN_CHARACTERS_MAX = 1000
#: The two characters outside ASCII whose lower case holds an ASCII letter: İ and the Kelvin sign.
_ASCII_IN_LOWER_CASE = ("\u0130".encode(), "\u212a".encode())


class Clock:
    """How long the lines of one chunk have taken their pattern so far."""

    def __init__(self) -> None:
        self.seconds = 0.0


@dataclass(frozen=True)
class Filters:
    """Empty means all. Times are epoch seconds: after < time <= before, by the host's clock.

    `ranks` holds -1 for lines outside any rank, `streams` letters of logs.lines, `text` is a substring and
    `pattern` a regular expression, both without regard to case.
    """

    ranks: frozenset[int] = frozenset()
    levels: frozenset[Level] = frozenset()
    hosts: frozenset[str] = frozenset()
    streams: frozenset[str] = frozenset()
    allocations: frozenset[str] = frozenset()
    after_time: float | None = None
    before_time: float | None = None
    text: str = ""
    pattern: str = ""
    #: the members of `allocations`, once a read has looked them up; None: as `allocations` is empty
    members: frozenset[int] | None = field(compare=False, default=None)
    level_mask: int = field(init=False, repr=False, compare=False, default=0)
    _compiled: Any = field(init=False, repr=False, compare=False, default=None)
    _needle: str = field(init=False, repr=False, compare=False, default="")
    _needle_bytes: bytes = field(init=False, repr=False, compare=False, default=b"")
    _in_bytes: Any = field(init=False, repr=False, compare=False, default=None)

    def __post_init__(self) -> None:
        """Raises Refusal."""
        object.__setattr__(self, "level_mask", mask_of(self.levels))
        object.__setattr__(self, "_needle", self.text.lower())
        if self.text.isascii():
            needle = self._needle.encode()
            object.__setattr__(self, "_needle_bytes", needle)
            # finds a literal at the speed of memory in either case, and lets other threads run meanwhile
            in_bytes = (
                regex.compile(regex.escape(self._needle).encode(), regex.IGNORECASE) if needle else None
            )
            object.__setattr__(self, "_in_bytes", in_bytes)
        if self.pattern:
            object.__setattr__(self, "_compiled", _compile(self.pattern))

    def searching(self, search: str, *, is_regex: bool) -> Filters:
        """Return these filters with the text of a search box added. Raises Refusal."""
        return replace(self, text="" if is_regex else search, pattern=search if is_regex else "")

    @property
    def chooses_runs(self) -> bool:
        """Whether some runs of a chunk may be left out as a whole."""
        times = self.after_time is not None or self.before_time is not None
        return bool(self.ranks or self.hosts or self.streams or times or self.members is not None)

    @property
    def chooses_lines(self) -> bool:
        """Whether single lines of a run may be left out."""
        return bool(self.levels or self.text or self.pattern)

    def wants_run(self, rank: int | None, stream: str, time: float, source: Source) -> bool:
        """Whether lines of this rank, stream, time and source are wanted, as far as these say."""
        if self.ranks and (NO_RANK if rank is None else rank) not in self.ranks:
            return False
        if self.hosts and source.host not in self.hosts:
            return False
        if self.streams and stream not in self.streams:
            return False
        if self.after_time is not None and time <= self.after_time:
            return False
        if self.before_time is not None and time > self.before_time:
            return False
        return self.members is None or source.member_id in self.members

    def select(self, lines: list[LogLine]) -> list[LogLine]:
        """The wanted ones of some lines. Raises Refusal."""
        clock = Clock()
        return lines if self == _ALL else [line for line in lines if self.match(line, clock)]

    def may_match(self, content: bytes, text_at: int) -> bool:
        """False when no line of `content` from `text_at` on can hold the text."""
        if self._in_bytes is None or self._in_bytes.search(content, text_at, concurrent=True):
            return True
        return not content.isascii() and _has_odd_letters(content)

    def to_search(self, text: bytes) -> tuple[bytes, bytes] | tuple[str, str]:
        """The text and what is searched in it, in lower case: in bytes where that is the same as in characters."""
        if self._needle_bytes and not _has_odd_letters(text):
            return text.lower(), self._needle_bytes
        return text_of(text).lower(), self._needle

    def match(self, line: LogLine, clock: Clock | None = None) -> bool:
        """Whether the line is wanted. Raises Refusal."""
        if not self.wants_run(line.rank, line.stream, line.time, Source(line.member, line.host)):
            return False
        if self.levels and not bit_of(line.level) & self.level_mask:
            return False
        if self._needle and self._needle not in line.text.lower():
            return False
        return self._compiled is None or self.matches_pattern(line.text, clock or Clock())

    def matches_pattern(self, text: str, clock: Clock) -> bool:
        """Raises Refusal, also when all lines on `clock` together take too long."""
        begin = time.perf_counter()
        try:
            found = self._compiled.search(text, timeout=PATTERN_SECONDS_PER_LINE, concurrent=True) is not None
        except TimeoutError as error:
            raise Refusal(
                f"The regular expression {shown(self.pattern)!r} takes longer than "
                f"{PATTERN_SECONDS_PER_LINE:g} s on a line of this log; nested repeats such as (a+)+ can cause this."
            ) from error
        clock.seconds += time.perf_counter() - begin
        if clock.seconds > PATTERN_SECONDS_PER_CHUNK:
            raise Refusal(
                f"The regular expression {shown(self.pattern)!r} takes longer than {PATTERN_SECONDS_PER_CHUNK:g} s "
                "on a page of this log; nested repeats such as (a+)+ can cause this. Narrow it by rank, level or time."
            )
        return found


_ALL = Filters()


def _has_odd_letters(text: bytes) -> bool:
    return not text.isascii() and any(odd in text for odd in _ASCII_IN_LOWER_CASE)


def _compile(pattern: str) -> regex.Pattern[str]:
    if len(pattern) > PATTERN_CHARACTERS_MAX:
        raise Refusal(f"The regular expression is longer than {PATTERN_CHARACTERS_MAX} characters.")
    try:
        return compiled(pattern, regex.IGNORECASE | regex.V0)
    except ValueError as error:
        raise Refusal(f"{shown(pattern)!r} is not a regular expression: {error}.") from error
