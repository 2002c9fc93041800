"""What is kept of a reported metric: numbers, NaN and infinities by name, text; nested names joined."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

_UNSAFE = re.compile("[\x00\ud800-\udfff]")  # PostgreSQL's text and JSON refuse them
_NOT_FINITE = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}
_NUMBERS = {float, int}
GROUP_CHARACTERS = 128  # the column's width
#: group -> its name in summaries, which is Determined's; other groups keep theirs
SUMMARY_GROUPS = {"training": "avg_metrics", "validation": "validation_metrics"}


def flat(values: Mapping[str, Any]) -> Mapping[str, Any]:
    """The values with nested names joined: `{"a": {"b": nan}}` becomes `{"a.b": nan}`."""
    if _NUMBERS.issuperset(map(type, values.values())) and all(map(is_safe, values)):
        return values  # as nearly all are
    found: dict[str, Any] = {}
    for name, value in values.items():
        key = text(str(name))
        if isinstance(value, Mapping):
            found.update({f"{key}.{inner}": kept for inner, kept in flat(value).items()})
        else:
            found[key] = value if type(value) in _NUMBERS else _kept(value)
    return found


@lru_cache(maxsize=10_000)
def is_safe(name: object) -> bool:
    """Whether it is text as PostgreSQL takes it."""
    return isinstance(name, str) and not _UNSAFE.search(name)


def are_numbers(values: Sequence[Any]) -> bool:
    """Whether each value is a number, or one that is not finite by its name."""
    kinds = set(map(type, values))
    if str not in kinds:
        return kinds <= _NUMBERS
    return kinds <= _NUMBERS | {str} and all(
        type(value) is not str or value in _NOT_FINITE for value in values
    )


def storable(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values as JSON that PostgreSQL accepts: `{"a": {"b": nan}}` becomes `{"a.b": "NaN"}`."""
    return {name: _kept(value) for name, value in flat(values).items()}


def _kept(value: Any) -> Any:
    if callable(getattr(value, "tolist", None)):  # numpy's scalars and arrays
        value = value.tolist()
    if isinstance(value, float) and not math.isfinite(value):
        return name_of(value)
    if isinstance(value, str):
        return text(value)
    if isinstance(value, (list, tuple)):
        return [_kept(item) for item in value]
    if isinstance(value, Mapping):
        return storable(value)
    return value


def name_of(value: float) -> str:
    """How JSON says a number that is none or infinite."""
    return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"


def number_or_name(value: float) -> float | str:
    """The value if it is finite, else its name."""
    return value if math.isfinite(value) else name_of(value)


def text(value: str) -> str:
    return _UNSAFE.sub("\ufffd", value)


@lru_cache(maxsize=1000)
def group_name(name: str) -> str:
    """The name of a group as PostgreSQL takes it."""
    return text(name)[:GROUP_CHARACTERS]


def number(value: object) -> float | None:
    """The stored value as a float (NaN and infinities included), or None for what is no number."""
    if isinstance(value, (int, float)):
        try:
            return float(value)
        except OverflowError:
            return math.inf if value > 0 else -math.inf
    if isinstance(value, str):
        return _NOT_FINITE.get(value)
    return None
