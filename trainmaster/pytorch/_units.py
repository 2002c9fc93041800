"""Lengths and periods of training in batches, epochs or records, and what `Trainer.fit` is told to do by them."""

from __future__ import annotations

import dataclasses
import math
import sys
from collections import abc
from typing import Any, Container, Dict, NamedTuple, Optional, Type, Union

#: batches in an epoch of a loader that does not say: it never ends
UNKNOWN = sys.maxsize
POLICIES = ("best", "all", "none")


@dataclasses.dataclass
class Position:
    """Where a training stands. `batches` counts since its start, `batch_in_epoch` those of the current epoch.

    An epoch that has ended counts: then `epochs` is one more and `batch_in_epoch` is 0.
    """

    per_epoch: int
    records_per_batch: Optional[int] = None
    batches: int = 0
    epochs: int = 0
    batch_in_epoch: int = 0

    def advance(self) -> None:
        """One batch more."""
        self.batches += 1
        self.batch_in_epoch += 1
        if self.batch_in_epoch >= self.per_epoch:
            self.epochs += 1
            self.batch_in_epoch = 0


class TrainUnit:
    """A number of batches, epochs or records, 1 or more (ValueError); a batch is one of all ranks together.

    A period of batches or epochs may be a schedule instead: a container of the numbers after which it is due.
    """

    def __init__(self, value: Union[int, Container[int]]) -> None:
        is_number = isinstance(value, int) and not isinstance(value, bool) and value >= 1
        if not is_number and (isinstance(value, (int, str)) or not isinstance(value, abc.Container)):
            raise ValueError(f"{type(self).__name__}({value!r}): it must be a whole number, 1 or more.")
        self.value = value

    def __eq__(self, other: object) -> bool:
        return type(other) is type(self) and other.__dict__ == self.__dict__

    def __hash__(self) -> int:
        return hash((type(self), self.value if isinstance(self.value, int) else 0))

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.value})"

    def should_stop(self, step_num: int) -> bool:
        """True if a period ends with this many of them, for loops of one's own."""
        if isinstance(self.value, int):
            return step_num > 0 and step_num % self.value == 0
        return step_num in self.value

    def due(self, position: Position) -> bool:
        """True after every `value` of them."""
        return position.batches % self.in_batches(position) == 0

    def reached(self, position: Position) -> bool:
        """True when so many have been trained."""
        return position.batches >= self.in_batches(position)

    def in_batches(self, position: Position) -> int:
        raise NotImplementedError

    def number(self) -> int:
        """ValueError for a schedule."""
        if not isinstance(self.value, int):
            raise ValueError(
                f"{self!r} is a schedule; a length in this unit must be a whole number, 1 or more."
            )
        return self.value


class Batch(TrainUnit):
    """So many batches."""

    def due(self, position: Position) -> bool:
        return self.should_stop(position.batches)

    def in_batches(self, position: Position) -> int:
        return self.number()


class Epoch(TrainUnit):
    """So many passes over the training data."""

    def due(self, position: Position) -> bool:
        return position.batch_in_epoch == 0 and self.should_stop(position.epochs)

    def reached(self, position: Position) -> bool:
        return position.epochs >= self.number()

    def in_batches(self, position: Position) -> int:
        return self.number() * position.per_epoch


class Record(TrainUnit):
    """So many samples: as many whole global batches as they fill, at least one.

    ValueError when the hyperparameters have no `global_batch_size`.
    """

    def in_batches(self, position: Position) -> int:
        if not position.records_per_batch:
            raise ValueError(f"{self!r} needs the hyperparameter global_batch_size to be counted in batches.")
        return max(1, self.number() // position.records_per_batch)


_UNITS: Dict[str, Type[TrainUnit]] = {"batches": Batch, "epochs": Epoch, "records": Record}


def unit_of(section: Union[int, Dict[str, Any], None]) -> Optional[TrainUnit]:
    """What the config says: `{batches: 100}`, a plain number (batches), or None for 0 and nothing."""
    if not section:
        return None
    if isinstance(section, int):
        return Batch(section)
    for name, unit in _UNITS.items():
        if section.get(name):
            return unit(int(section[name]))
    return None


class Plan(NamedTuple):
    """How long to train, and after how much to do what; None of a period: only at the end."""

    max_length: TrainUnit
    checkpoint_period: Optional[TrainUnit] = None
    validation_period: Optional[TrainUnit] = None
    reporting_period: TrainUnit = Batch(100)
    checkpoint_policy: str = "best"
    step_zero_validation: bool = False
    test_mode: bool = False

    def counts_epochs(self) -> bool:
        """Whether any length or period is in epochs."""
        units = (self.max_length, self.checkpoint_period, self.validation_period, self.reporting_period)
        return any(isinstance(unit, Epoch) for unit in units)


class Goal(NamedTuple):
    """The searcher's metric; `name` None when there is no searcher."""

    name: Optional[str] = None
    smaller_is_better: bool = True

    def better(self, new: float, old: Optional[float]) -> bool:
        """Whether `new` is better than the best so far; NaN never is."""
        if math.isnan(new):
            return False
        return old is None or (new < old if self.smaller_is_better else new > old)


def goal_of(config: Dict[str, Any]) -> Goal:
    """As the config's searcher says."""
    searcher = config.get("searcher") or {}
    smaller = searcher.get("smaller_is_better")
    return Goal(searcher.get("metric"), True if smaller is None else bool(smaller))


def checked_unit(value: Any, name: str) -> Optional[TrainUnit]:
    """`value`, which may be None. TypeError for anything but a TrainUnit."""
    if value is not None and not isinstance(value, TrainUnit):
        raise TypeError(
            f"fit({name}={value!r}): give pytorch.Batch(n), pytorch.Epoch(n) or pytorch.Record(n), "
            f"not {type(value).__name__}."
        )
    return value


def checked_policy(policy: str) -> str:
    """ValueError for anything but a policy."""
    if policy not in POLICIES:
        raise ValueError(f"checkpoint_policy is {policy!r}; it must be one of {', '.join(POLICIES)}.")
    return policy
