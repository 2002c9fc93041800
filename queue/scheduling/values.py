"""How the plain values of the planner are declared."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeVar, dataclass_transform

T = TypeVar("T")


@dataclass_transform(frozen_default=True)
def value(cls: type[T]) -> type[T]:
    """A frozen dataclass for the type checker, which finds whoever changes one; a plain one with slots when it runs.

    A pass makes tens of thousands of them, and to freeze one takes most of the time of making it.
    """
    return dataclass(slots=True, unsafe_hash=True)(cls)
