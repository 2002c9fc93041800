"""Hyperparameters of several trials, parted into those that set them apart and those that they share."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from metrics.hparam_axes import MISSING, flat, spelled


@dataclass(frozen=True)
class Table:
    """Names of nested ones are joined by dots. `differing`: name -> a value per trial; `shared`: name -> the value."""

    differing: dict[str, list[str]]
    shared: dict[str, str]

    def differing_of(self, place: int) -> list[tuple[str, str]]:
        """Name and value of one trial, in the order of the names."""
        return [(name, values[place]) for name, values in self.differing.items()]


def named(hparams: Mapping[str, Any]) -> dict[str, str]:
    """Return a trial's hyperparameters as name -> text, sorted by name; the database keeps no other order."""
    return table_of([hparams]).shared


def table_of(trials: Sequence[Mapping[str, Any]]) -> Table:
    """Build the table of the trials in their order. 1 and 1.0 are equal; so are lists and objects of equal content."""
    found = [flat(each) for each in trials]
    names = sorted({name for each in found for name in each})
    differing, shared = {}, {}
    for name in names:
        values = [each.get(name, MISSING) for each in found]
        if all(name in each for each in found) and all(_same(value, values[0]) for value in values):
            shared[name] = spelled(values[0])
        else:
            differing[name] = [spelled(value) for value in values]
    return Table(differing, shared)


def _same(one: Any, another: Any) -> bool:
    return bool(one == another) and isinstance(one, bool) == isinstance(another, bool)  # to Python, True is 1
