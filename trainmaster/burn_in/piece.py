"""What each measurement gets and gives: a stretch of time that ends early when the run is asked to leave."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any, Callable, Iterable, Iterator, NamedTuple, Optional

#: how long each measurement works
SECONDS = 3.0
GIGA = 1e9
SENTENCE_CHARACTERS = 300


class Leave(Exception):
    """The queue wants the slots for something else."""


class Result(NamedTuple):
    """One figure. `slot`: whose GPU it is about; None: the host. `how`: figures are compared only with the same."""

    measure: str
    value: float
    how: str
    slot: Optional[int] = None


def true_rows(torch: Any, left: Any, rows: Iterable[int]) -> Any:
    """These rows of the product of a matrix of zeros and ones with itself, by adding whole numbers, not by multiplying.

    A row of the product is the sum of those rows of the matrix for which it has a one. It is on the processor.
    """
    return torch.stack([left[left[row].bool()].sum(0, dtype=torch.int64) for row in rows])


class Pace:
    """Says for how long a measurement works. Raises Leave soon after the order to leave is there."""

    def __init__(self, order: Path, seconds: float = SECONDS) -> None:
        self._order = order
        self.seconds = seconds

    def check(self) -> None:
        """Raise Leave if the run was asked to leave."""
        if self.is_over():
            raise Leave

    def is_over(self) -> bool:
        """Whether the run was asked to leave."""
        return self._order.exists()

    def rounds(self) -> Iterator[int]:
        """Numbers of rounds until the time is over, one at least."""
        until, number = time.perf_counter() + self.seconds, 0
        while not number or time.perf_counter() < until:
            self.check()
            yield number
            number += 1

    def per_second(self, amount: float, work: Callable[[], object]) -> float:
        """How much of `amount` per second `work` does, which ends when its work is done. The first time is left out."""
        work()
        began, count = time.perf_counter(), 0
        for _ in self.rounds():
            work()
            count += 1
        return amount * count / (time.perf_counter() - began)
