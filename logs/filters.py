"""Which lines of a log are wanted."""

from __future__ import annotations

import json
from dataclasses import dataclass, field, replace
from typing import Any

import regex

from logs.levels import Level, bit_of, mask_of
from logs.lines import NO_RANK, Line, shown

#: One line against one pattern; a pattern that needs longer is one that explodes.
PATTERN_SECONDS_PER_LINE = 0.1
PATTERN_CHARACTERS_MAX = 1000
#: The two characters outside ASCII whose lower case holds an ASCII letter: İ and the Kelvin sign.
_ASCII_IN_LOWER_CASE = ("\u0130".encode(), "\u212a".encode())


class BadPattern(ValueError):
    """The regular expression is none; the message is a sentence."""


class PatternTooSlow(Exception):
    """The regular expression takes too long on a line of this log; the message is a sentence."""


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
    level_mask: int = field(init=False, repr=False, compare=False, default=0)
    _compiled: Any = field(init=False, repr=False, compare=False, default=None)
    _needle: str = field(init=False, repr=False, compare=False, default="")
    _needle_bytes: bytes = field(init=False, repr=False, compare=False, default=b"")

    def __post_init__(self) -> None:
        """Raises BadPattern."""
        object.__setattr__(self, "level_mask", mask_of(self.levels))
        object.__setattr__(self, "_needle", self.text.lower())
        if (
            self.text.isascii()
        ):  # then it stands in a chunk's JSON as it does in the line, but for the escapes
            object.__setattr__(self, "_needle_bytes", json.dumps(self.text)[1:-1].lower().encode())
        if self.pattern:
            object.__setattr__(self, "_compiled", _compile(self.pattern))

    def searching(self, search: str, *, is_regex: bool) -> Filters:
        """The same filters with what a search box holds. Raises BadPattern."""
        return replace(self, text="" if is_regex else search, pattern=search if is_regex else "")

    def select(self, lines: list[Line]) -> list[Line]:
        """The wanted ones of some lines. Raises PatternTooSlow."""
        return lines if self == _ALL else [line for line in lines if self.match(line)]

    def may_match(self, content: bytes) -> bool:
        """False when no line of these unpacked JSON lines can hold the text."""
        if not self._needle_bytes or self._needle_bytes in content.lower():
            return True
        return any(odd in content for odd in _ASCII_IN_LOWER_CASE)

    def match(self, line: Line) -> bool:
        """Whether the line is wanted. Raises PatternTooSlow."""
        if self.ranks and (NO_RANK if line.rank is None else line.rank) not in self.ranks:
            return False
        if self.levels and not bit_of(line.level) & self.level_mask:
            return False
        if self.hosts and line.host not in self.hosts:
            return False
        if self.streams and line.stream not in self.streams:
            return False
        if self.after_time is not None and line.time <= self.after_time:
            return False
        if self.before_time is not None and line.time > self.before_time:
            return False
        if self._needle and self._needle not in line.text.lower():
            return False
        return self._compiled is None or self._found(line.text)

    def _found(self, text: str) -> bool:
        try:
            return self._compiled.search(text, timeout=PATTERN_SECONDS_PER_LINE, concurrent=True) is not None
        except TimeoutError as error:
            raise PatternTooSlow(
                f"The regular expression {shown(self.pattern)!r} takes longer than "
                f"{PATTERN_SECONDS_PER_LINE:g} s on a line of this log; nested repeats such as (a+)+ do that."
            ) from error


_ALL = Filters()


def _compile(pattern: str) -> regex.Pattern[str]:
    if len(pattern) > PATTERN_CHARACTERS_MAX:
        raise BadPattern(f"The regular expression is longer than {PATTERN_CHARACTERS_MAX} characters.")
    try:
        return regex.compile(pattern, regex.IGNORECASE | regex.V0)
    except (regex.error, OverflowError, RecursionError) as error:
        raise BadPattern(f"{shown(pattern)!r} is not a regular expression: {error}.") from error
