"""Lengths and periods of training: batches, epochs, records."""

from __future__ import annotations

import dataclasses
import sys
from typing import Any, Dict, Optional, Type, Union

#: batches in an epoch of a loader that does not say: it never ends
UNKNOWN = sys.maxsize


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
    """A number of batches, epochs or records, 1 or more (ValueError); a batch is one of all ranks together."""

    def __init__(self, value: int) -> None:
        if isinstance(value, bool) or not isinstance(value, int) or value < 1:
            raise ValueError(f"{type(self).__name__}({value!r}): it must be a whole number, 1 or more.")
        self.value = value

    def __eq__(self, other: object) -> bool:
        return type(other) is type(self) and other.__dict__ == self.__dict__

    def __hash__(self) -> int:
        return hash((type(self), self.value))

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.value})"

    def due(self, position: Position) -> bool:
        """True after every `value` of them."""
        return position.batches % self.in_batches(position) == 0

    def reached(self, position: Position) -> bool:
        """True when so many have been trained."""
        return position.batches >= self.in_batches(position)

    def in_batches(self, position: Position) -> int:
        raise NotImplementedError


class Batch(TrainUnit):
    """So many batches."""

    def in_batches(self, position: Position) -> int:
        return self.value


class Epoch(TrainUnit):
    """So many passes over the training data."""

    def due(self, position: Position) -> bool:
        return position.batch_in_epoch == 0 and position.epochs % self.value == 0

    def reached(self, position: Position) -> bool:
        return position.epochs >= self.value

    def in_batches(self, position: Position) -> int:
        return self.value * position.per_epoch


class Record(TrainUnit):
    """So many samples: as many whole global batches as they fill, at least one.

    ValueError when the hyperparameters have no `global_batch_size`.
    """

    def in_batches(self, position: Position) -> int:
        if not position.records_per_batch:
            raise ValueError(f"{self!r} needs the hyperparameter global_batch_size to be counted in batches.")
        return max(1, self.value // position.records_per_batch)


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
