"""Hyperparameters as axes of charts: numbers, on a log scale where they are drawn from one, or categories."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

import numpy as np

from metrics.packing import Floats
from searching.hyperparameters import is_typed

#: stands where a trial has no such hyperparameter
MISSING = "not set"
Flat = dict[str, Any]


class Kind(StrEnum):
    NUMBER = "number"
    LOG = "log"
    CATEGORY = "category"


@dataclass(frozen=True)
class Axis:
    """One hyperparameter that varies. `categories`: its values as text, in their order; empty for numbers."""

    name: str
    kind: Kind
    categories: tuple[str, ...] = ()

    def places(self, tried: Sequence[Flat]) -> Floats:
        """Where the trials lie: numbers (LOG: their log10) or the category's place from 0; NaN where there is none."""
        if self.kind == Kind.CATEGORY:
            at = {text: float(place) for place, text in enumerate(self.categories)}
            return np.array([at.get(value_text(each, self.name), np.nan) for each in tried], np.float64)
        values = np.array([_number(each.get(self.name)) for each in tried], np.float64)
        if self.kind == Kind.LOG:
            values[~(values > 0)] = np.nan
            return np.log10(values)
        return values


@dataclass(frozen=True)
class Bounds:
    """Which values of one hyperparameter are looked at: numbers from `low` to `high`, or the texts `among`."""

    low: float | None = None
    high: float | None = None
    among: frozenset[str] = frozenset()

    def hold(self, trial: Flat, name: str) -> bool:
        if self.among:
            return value_text(trial, name) in self.among
        return self.hold_number(_number(trial.get(name)))

    def hold_number(self, value: float) -> bool:
        """False for NaN."""
        return (self.low is None or value >= self.low) and (self.high is None or value <= self.high)


def axes(config: Mapping[str, Any], tried: Iterable[Flat]) -> list[Axis]:
    """Those that take more than one value in these trials, by name; `config`: that section of the experiment's."""
    specs = _specs(config)
    found = []
    for name, values in sorted(_distinct(tried).items()):
        if not _varies(values):
            continue
        is_number = not any(np.isnan(_number(value)) for value in values)
        kind = _kind(specs.get(name), is_number)
        texts = set(map(spelled, values)) if kind == Kind.CATEGORY else set()
        found.append(Axis(name, kind, in_order(texts)))
    return found


def _distinct(tried: Iterable[Flat]) -> dict[str, list[Any]]:
    """Name -> the values that it takes, each once: of ten thousand trials few differ, and words cost more than sets."""
    plain: dict[str, set[tuple[type, Any]]] = {}
    others: dict[str, dict[str, Any]] = {}
    for trial in tried:
        for name, value in trial.items():
            if isinstance(value, (list, dict)):
                others.setdefault(name, {})[spelled(value)] = value
            else:
                plain.setdefault(name, set()).add((type(value), value))  # to Python, True and 1.0 are 1
    return {
        name: [value for _, value in plain.get(name, ())] + list(others.get(name, {}).values())
        for name in plain.keys() | others.keys()
    }


def _varies(values: Sequence[Any]) -> bool:
    """Are there two that people read as different?"""
    return any(spelled(value) != spelled(values[0]) for value in values)


def _kind(spec: Mapping[str, Any] | None, is_number: bool) -> Kind:
    if not is_number or (spec and spec["type"] == "categorical"):
        return Kind.CATEGORY
    return Kind.LOG if spec and spec["type"] == "log" else Kind.NUMBER


def _specs(config: Mapping[str, Any], before: str = "") -> dict[str, Mapping[str, Any]]:
    found: dict[str, Mapping[str, Any]] = {}
    for name, value in config.items():
        if is_typed(value):
            found[f"{before}{name}"] = value
        elif isinstance(value, Mapping):
            found.update(_specs(value, f"{before}{name}."))
    return found


def in_order(texts: set[str]) -> tuple[str, ...]:
    """Numbers by size, then the rest by letters."""

    def place(text: str) -> tuple[bool, float, str]:
        try:
            return False, float(text), text
        except ValueError:
            return True, 0.0, text

    return tuple(sorted(texts, key=place))


def flat(values: Mapping[str, Any], before: str = "") -> Flat:
    """Flatten the hyperparameters of one trial; the names of nested ones are joined by dots."""
    found: Flat = {}
    for name, value in values.items():
        if isinstance(value, Mapping) and value:
            found.update(flat(value, f"{before}{name}."))
        else:
            found[before + str(name)] = value
    return found


def value_text(trial: Flat, name: str) -> str:
    return spelled(trial[name]) if name in trial else MISSING


def spelled(value: Any) -> str:
    """A value as people read it: `0.01`, `adam`, `[1, 2]`, `true`."""
    if isinstance(value, float):
        return f"{value:.6g}"
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _number(value: Any) -> float:
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        try:
            return float(value)
        except OverflowError:
            return np.nan
    return np.nan
