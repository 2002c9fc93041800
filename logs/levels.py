"""Levels of log lines: names on the wire, bits in a chunk's mask, Determined's words for them."""

from __future__ import annotations

from collections.abc import Iterable
from enum import IntEnum
from functools import reduce
from operator import or_

from accounts.refusals import Refusal


class Level(IntEnum):
    """Ordered by weight; UNSPECIFIED is a line that named none."""

    UNSPECIFIED = 0
    TRACE = 1
    DEBUG = 2
    INFO = 3
    WARNING = 4
    ERROR = 5
    CRITICAL = 6

    @property
    def bit(self) -> int:
        return 1 << self.value

    @property
    def determined(self) -> str:
        """The name in Determined's REST dialect, such as LOG_LEVEL_INFO."""
        return f"LOG_LEVEL_{self.name}"


_PREFIX = "LOG_LEVEL_"
_BIT_OF_NAME: dict[str | None, int] = {
    None: Level.UNSPECIFIED.bit,
    **{level.name: level.bit for level in Level},
}


def parse(text: str) -> Level:
    """`INFO`, `info` or `LOG_LEVEL_INFO`. Raises Refusal."""
    try:
        return Level[text.upper().removeprefix(_PREFIX)]
    except KeyError as error:
        allowed = ", ".join(level.name for level in Level)
        raise Refusal(f"The level {text!r} is unknown; allowed: {allowed}.") from error


def bit_of(name: str | None) -> int:
    """The bit of a stored level name; a name that is none of ours counts as unspecified."""
    return _BIT_OF_NAME.get(name, Level.UNSPECIFIED.bit)


def mask_of(levels: Iterable[Level]) -> int:
    return reduce(or_, (level.bit for level in levels), 0)
