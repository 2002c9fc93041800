"""Values of query strings and forms: numbers, times, choices, ranges and filters of log lines, each read in one way.

The `as_` functions return None for a text that is no such value. The others take a query and the name of a parameter,
treat an empty parameter as absent, and raise Refusal with a sentence that names the parameter.
"""

from __future__ import annotations

import math
import re
import uuid
from collections.abc import Callable, Collection, Iterable, Sequence
from datetime import UTC
from typing import TypeVar

from django.http import QueryDict
from django.utils.dateparse import parse_datetime

from accounts.refusals import Refusal
from logs.filters import Filters
from logs.levels import parse
from logs.lines import STREAM_LETTERS

LARGEST_ID = 2**63 - 1
LARGEST_INTEGER = 2**31 - 1
#: JavaScript and floats represent each whole number up to this one
LARGEST_EXACT = 10**15
LARGEST_SECONDS = 10.0**12
RANKS_MAX = 10_000

_WHOLE = re.compile(r"-?[0-9]{1,19}")
_RANKS = re.compile(r"(-1|[0-9]{1,10})(?:-([0-9]{1,10}))?")
Value = TypeVar("Value")


def as_whole(text: str, most: int = LARGEST_ID, *, least: int = 0) -> int | None:
    """The whole number from `least` to `most` that a text is."""
    value = int(text) if _WHOLE.fullmatch(text) else least - 1
    return value if least <= value <= most else None


def as_id(text: str) -> int:
    """The id that a text is; 0, which no row has, for another text."""
    return as_whole(text) or 0


def as_ids(texts: Iterable[str]) -> list[int]:
    """The ids among the texts, each once."""
    return list(dict.fromkeys(found for text in texts if (found := as_whole(text)) is not None))


def as_uuid(text: str) -> uuid.UUID | None:
    """The UUID that a text is."""
    try:
        return uuid.UUID(text)
    except ValueError:
        return None


def as_number(text: str) -> float | None:
    """The finite number that a text is."""
    try:
        found = float(text)
    except ValueError:
        return None
    return found if math.isfinite(found) else None


def whole(query: QueryDict, name: str, most: int = LARGEST_EXACT, *, least: int = 0) -> int | None:
    """A whole number; None if the parameter is absent."""
    return next(iter(wholes(query, name, most, least=least)[-1:]), None)


def wholes(query: QueryDict, name: str, most: int = LARGEST_EXACT, *, least: int = 0) -> list[int]:
    """Each whole number of a parameter that repeats."""
    found = []
    for text in filter(None, query.getlist(name)):
        value = as_whole(text, most, least=least)
        if value is None:
            raise Refusal(f"{name} is {text[:40]!r}; it must be a whole number from {least} to {most}.")
        found.append(value)
    return found


def number(
    query: QueryDict, name: str, least: float = -LARGEST_EXACT, most: float = LARGEST_EXACT, what: str = ""
) -> float | None:
    """A finite number; None if the parameter is absent."""
    text = query.get(name)
    if not text:
        return None
    found = as_number(text)
    if found is None or not least <= found <= most:
        raise Refusal(
            f"{name} is {text[:40]!r}; it must be {what or f'a number from {least:g} to {most:g}'}."
        )
    return found


def seconds(query: QueryDict, name: str) -> float | None:
    """Epoch seconds; None if the parameter is absent."""
    return number(query, name, 0, LARGEST_SECONDS, "seconds since 1970, such as 1795255200.5")


def window(
    query: QueryDict,
    first: str,
    last: str,
    read: Callable[[QueryDict, str], float | None] = number,
) -> tuple[float | None, float | None]:
    """Both ends of a range, each None if it is open."""
    begin, end = read(query, first), read(query, last)
    if begin is not None and end is not None and end < begin:
        raise Refusal(f"The range ends before it begins: `{last}` must not be less than `{first}`.")
    return begin, end


def time(query: QueryDict, name: str) -> float | None:
    """Epoch seconds of an RFC 3339 time; None if the parameter is absent."""
    text = query.get(name)
    if not text:
        return None
    try:
        value = parse_datetime(text)
    except ValueError:
        value = None
    if value is None:
        raise Refusal(f"{name} is {text!r}; allowed: a time like 2026-01-31T12:00:00Z (RFC 3339).")
    return (value if value.tzinfo else value.replace(tzinfo=UTC)).timestamp()


def flag(query: QueryDict, name: str) -> bool:
    """Whether a parameter is true; absent means false."""
    text = query.get(name, "").lower()
    if text not in {"", "true", "false", "1", "0"}:
        raise Refusal(f"{name} is {text!r}; allowed: true or false.")
    return text in {"true", "1"}


def choice(query: QueryDict, name: str, allowed: Iterable[Value], usual: Value) -> Value:
    """The allowed value that the parameter has, otherwise the usual one: links grow old."""
    found = query.get(name)
    return next((each for each in allowed if str(each) == found), usual)


def choices(query: QueryDict, allowed: dict[str, Collection[str]]) -> tuple[QueryDict, list[str]]:
    """The query with the filters spelled as their pills are (`shell`, `Shells` → `shells`), and a sentence for each
    unknown value.

    `allowed`: parameter -> its values. The page ignores an unknown value.
    """
    chosen, wrong = query.copy(), []
    for name, values in allowed.items():
        found = query.get(name, "")
        meant = next((each for each in values if _stem(each) == _stem(found)), "")
        if found and not meant:
            wrong.append(f"Filter ignored: found {name}={found}, allowed: {', '.join(values)}.")
        if found:
            chosen[name] = meant
    return chosen, wrong


def _stem(value: str) -> str:
    return value.strip().lower().removesuffix("s")


def log_filters(query: QueryDict) -> Filters:
    """`rank` (0-2,5 or -1), `level`, `host`, `stream`, `from` and `to` (both inclusive), `search` with `regex`."""
    begin, end = window(query, "from", "to", seconds)
    streams = query.getlist("stream")
    if unknown := [name for name in streams if name not in STREAM_LETTERS]:
        raise Refusal(f"The stream {unknown[0][:40]!r} is unknown; allowed: stdout, stderr, server.")
    return Filters(
        ranks=_ranks(query.getlist("rank")),
        levels=frozenset(parse(name) for name in query.getlist("level")),
        hosts=frozenset(query.getlist("host")),
        streams=frozenset(STREAM_LETTERS[name] for name in streams),
        after_time=None if begin is None else math.nextafter(begin, -math.inf),
        before_time=end,
    ).searching(query.get("search", ""), is_regex="regex" in query)


def _ranks(texts: Sequence[str]) -> frozenset[int]:
    ranks: set[int] = set()
    count = 0
    for part in (part for text in texts for part in text.split(",")):
        found = _RANKS.fullmatch(part)
        if found is None:
            raise Refusal(f"The ranks {part[:40]!r} are invalid; write 5, 0-7, or -1 for lines of no rank.")
        first, last = int(found[1]), int(found[2] or found[1])
        if last < first or last - first >= RANKS_MAX:
            raise Refusal(f"The ranks {part!r} must be ascending and at most {RANKS_MAX:,}.")
        count += last - first + 1
        if count > RANKS_MAX:
            raise Refusal(f"More than {RANKS_MAX:,} ranks are requested; leave rank out for all of them.")
        ranks.update(range(first, last + 1))
    return frozenset(ranks)
