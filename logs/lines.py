"""What a log line is, before and after it is stored, and how any text is made safe to show."""

from __future__ import annotations

import re
from typing import NamedTuple

#: The number that stands for "no rank" wherever ranks are listed.
NO_RANK = -1

STDOUT, STDERR, SERVER = "o", "e", "s"

STREAM_NAMES = {STDOUT: "stdout", STDERR: "stderr", SERVER: "server"}
#: Names on the wire and in the REST dialect -> letter in the store. The letters themselves are accepted too.
STREAM_LETTERS = {name: letter for letter, long in STREAM_NAMES.items() for name in (letter, long)}

_UNSAFE = re.compile("[\x00\ud800-\udfff]")


class NewLine(NamedTuple):
    """A line that wants a number.

    `time` is the host's clock in epoch seconds, `rank` None outside any rank, `stream` a key of
    STREAM_LETTERS, `level` a name of levels.Level or None, `text` without its newline; bytes that are not
    UTF-8 come as surrogate escapes and survive.
    """

    time: float
    rank: int | None
    stream: str
    level: str | None
    text: str


class Line(NamedTuple):
    """A stored line. `stream` is a letter, `host` empty for the server's own lines, `member` the row's id."""

    number: int
    time: float
    rank: int | None
    stream: str
    level: str | None
    text: str
    host: str
    member: int | None


def shown(text: str) -> str:
    """The text with U+FFFD for what JSON readers, browsers and databases refuse: NUL and lone surrogates."""
    return _UNSAFE.sub("\ufffd", text)


def raw(text: str) -> bytes:
    """The bytes that the process wrote, without the newline."""
    try:
        return text.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:  # a surrogate that no byte stands behind: it was written as such
        return text.encode("utf-8", "surrogatepass")
