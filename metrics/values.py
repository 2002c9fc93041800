"""What is kept of a reported metric: numbers, NaN and infinities by name, text; nested names joined."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import Any

_UNSAFE = re.compile("[\x00\ud800-\udfff]")  # PostgreSQL's JSON refuses them
_NOT_FINITE = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}


def storable(values: Mapping[str, Any]) -> dict[str, Any]:
    """The values as JSON that PostgreSQL takes: `{"a": {"b": nan}}` becomes `{"a.b": "NaN"}`."""
    flat: dict[str, Any] = {}
    for name, value in values.items():
        key = text(str(name))
        if isinstance(value, Mapping):
            flat.update({f"{key}.{inner}": kept for inner, kept in storable(value).items()})
        else:
            flat[key] = _kept(value)
    return flat


def _kept(value: Any) -> Any:
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    if isinstance(value, str):
        return text(value)
    if isinstance(value, list):
        return [_kept(item) for item in value]
    if isinstance(value, Mapping):
        return storable(value)
    return value


def text(value: str) -> str:
    return _UNSAFE.sub("\ufffd", value)


def number(value: object) -> float | None:
    """The stored value as a float (NaN and infinities included), or None for what is no number."""
    if isinstance(value, (int, float)):
        return float(value)
    if isinstance(value, str):
        return _NOT_FINITE.get(value)
    return None
