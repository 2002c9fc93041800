"""What the log viewer asks for in its addresses: numbers, times and filters, each checked. Faults are sentences."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence

from django.http import QueryDict

from accounts.refusals import Refusal
from logs.filters import Filters
from logs.levels import parse
from logs.lines import STREAM_LETTERS

RANKS_MAX = 10_000

_NUMBER = re.compile(r"[0-9]{1,15}")
_RANKS = re.compile(r"(-1|[0-9]{1,10})(?:-([0-9]{1,10}))?")
_SECONDS = re.compile(r"[0-9]{1,12}(\.[0-9]{1,9})?")


def number(query: QueryDict, name: str, most: int = 10**15) -> int | None:
    """A whole number >= 0, at most `most`; None where the parameter is absent. Raises Refusal."""
    text = query.get(name)
    if text is None or text == "":
        return None
    if not _NUMBER.fullmatch(text):
        raise Refusal(f"{name} is {text[:40]!r}; it must be a whole number of at most 15 digits.")
    return min(int(text), most)


def seconds(query: QueryDict, name: str) -> float | None:
    """Epoch seconds; None where the parameter is absent. Raises Refusal."""
    text = query.get(name)
    if text is None or text == "":
        return None
    if not _SECONDS.fullmatch(text):
        raise Refusal(f"{name} is {text[:40]!r}; it must be seconds since 1970, such as 1795255200.5.")
    return float(text)


def filters(query: QueryDict) -> Filters:
    """`rank` (0-2,5 or -1), `level`, `host`, `stream`, `from` and `to` (both inclusive), `search` with `regex`.

    Raises Refusal.
    """
    begin, end = seconds(query, "from"), seconds(query, "to")
    if begin is not None and end is not None and end < begin:
        raise Refusal("The time range ends before it begins.")
    streams = set()
    for name in query.getlist("stream"):
        if name not in STREAM_LETTERS:
            raise Refusal(f"The stream {name[:40]!r} is unknown; allowed: stdout, stderr, server.")
        streams.add(STREAM_LETTERS[name])
    found = Filters(
        ranks=_ranks(query.getlist("rank")),
        levels=frozenset(parse(name) for name in query.getlist("level")),
        hosts=frozenset(query.getlist("host")),
        streams=frozenset(streams),
        after_time=None if begin is None else math.nextafter(begin, -math.inf),
        before_time=end,
    )
    return found.searching(query.get("search", ""), is_regex="regex" in query)


def _ranks(texts: Sequence[str]) -> frozenset[int]:
    ranks: set[int] = set()
    count = 0
    for part in (part for text in texts for part in text.split(",")):
        found = _RANKS.fullmatch(part)
        if found is None:
            raise Refusal(
                f"The ranks {part[:40]!r} are none; write them as 5, 0-7 or -1 for lines of no rank."
            )
        first, last = int(found[1]), int(found[2] or found[1])
        if last < first or last - first >= RANKS_MAX:
            raise Refusal(f"The ranks {part!r} must run upwards and be at most {RANKS_MAX:,}.")
        count += last - first + 1
        if count > RANKS_MAX:
            raise Refusal(f"More than {RANKS_MAX:,} ranks are asked for; leave rank out for all of them.")
        ranks.update(range(first, last + 1))
    return frozenset(ranks)
