"""What a log line is, before and after it is stored, and how any text is made safe to show."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from functools import reduce
from itertools import groupby
from operator import or_
from typing import NamedTuple

#: The number that stands for "no rank" wherever ranks are listed.
NO_RANK = -1

STDOUT, STDERR, SERVER = "o", "e", "s"

STREAM_NAMES = {STDOUT: "stdout", STDERR: "stderr", SERVER: "server"}
#: Names on the wire and in the REST dialect -> letter in the store. The letters themselves are accepted too.
STREAM_LETTERS = {name: letter for letter, long in STREAM_NAMES.items() for name in (letter, long)}

#: Bits of streams in a chunk's `kinds`, above those of levels.
_BIT_OF_STREAM = {STDOUT: 1 << 8, STDERR: 1 << 9, SERVER: 1 << 10}

_UNSAFE = re.compile("[\x00\ud800-\udfff]")
#: colors and other words to a terminal
_ESCAPES = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[@-_])")


class Block(NamedTuple):
    """Lines of one rank and stream that were read together, and want numbers.

    `time` is the host's clock in epoch seconds, `rank` None outside any rank, `stream` a key of
    STREAM_LETTERS. `levels` are (index, name) of the lines that state one (a name of levels.Level), `cut` the
    indices of lines that the next line of the same rank and stream goes on. `text` is the lines joined by
    `\\n`; bytes that are not UTF-8 come as surrogate escapes and survive.
    """

    time: float
    rank: int | None
    stream: str
    levels: Sequence[tuple[int, str]]
    cut: Sequence[int]
    text: str


class NewLine(NamedTuple):
    """A line by itself that wants a number; `blocks_of` makes blocks of such lines. `text` is without its newline."""

    time: float
    rank: int | None
    stream: str
    level: str | None
    text: str
    cut: bool = False


class LogLine(NamedTuple):
    """A stored line. `stream` is a letter, `host` empty for the server's own lines, `member` the row's id."""

    number: int
    time: float
    rank: int | None
    stream: str
    level: str | None
    text: str
    host: str
    member: int | None
    #: the next line of the same rank and stream goes on with this one, which was too long for one
    cut: bool = False


def streams_in(kinds: int) -> frozenset[str]:
    """The letters of the streams whose bits a chunk's `kinds` has."""
    return frozenset(letter for letter, bit in _BIT_OF_STREAM.items() if kinds & bit)


def mask_of_streams(letters: Iterable[str]) -> int:
    """The bits of these streams in a chunk's `kinds`."""
    return reduce(or_, (_BIT_OF_STREAM.get(letter, 0) for letter in letters), 0)


def blocks_of(lines: Iterable[NewLine]) -> list[Block]:
    """Pack lines, in their order, into as few blocks as possible. A text with newlines becomes several lines."""
    blocks = []
    single = (line._replace(text=text) for line in lines for text in line.text.split("\n"))
    for (time, rank, stream), together in groupby(single, key=lambda line: line[:3]):
        part = list(together)
        levels = [(index, line.level) for index, line in enumerate(part) if line.level]
        cut = [index for index, line in enumerate(part) if line.cut]
        blocks.append(Block(time, rank, stream, levels, cut, "\n".join(line.text for line in part)))
    return blocks


def shown(text: str) -> str:
    """The text with U+FFFD for what JSON readers, browsers and databases refuse: NUL and lone surrogates."""
    if text.isascii() and "\x00" not in text:  # nearly always, and much faster
        return text
    return _UNSAFE.sub("\ufffd", text)


def plain(text: str) -> str:
    """What a program wrote, without what only terminals understand."""
    return _ESCAPES.sub("", shown(text))


def raw(text: str) -> bytes:
    """The bytes that the process wrote, without the newline."""
    try:
        return text.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:  # a surrogate that no byte stands behind: it was written as such
        return text.encode("utf-8", "surrogatepass")


def text_of(written: bytes) -> str:
    """What `raw` was made from: bytes that are not UTF-8 as surrogate escapes."""
    return written.decode("utf-8", "surrogateescape")
