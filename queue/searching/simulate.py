"""A search in virtual time: how many trials train how long, without training one.

Trials report at their rungs, and take one unit of time for each unit of length. Hosts are as many as the search
may use at once, and nothing is lost to waiting, saving or starting.
"""

from __future__ import annotations

import heapq
import math
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from searching import halving, search
from searching.drawing import Draws
from searching.events import (
    Again,
    Create,
    ExitReason,
    Operation,
    Promote,
    Shutdown,
    Stop,
    TrialExited,
    ValidationReported,
)
from searching.rungs import Bracket, tree
from searching.state import BRACKET, RUNG, STANDING, Standing, State, number_of

#: (hyperparameters, units trained) -> the searcher's metric
Metric = Callable[[dict[str, Any], int], float]


@dataclass(frozen=True, slots=True)
class Simulation:
    """`lengths`: units -> trials that ended there, the shortest first. `at_once`: most trials that ran together.

    `units`: trained by all trials; `span`: from the first start to the last end, both in units; None where a trial's
    length is not known. `best`: the best metric, None without a function for it. `over`: how the search ended.
    """

    trials: int
    lengths: dict[int, int]
    units: int | None
    span: int | None
    at_once: int
    brackets: tuple[Bracket, ...]
    best: float | None
    over: Shutdown
    state: State


def simulate(
    searcher: dict[str, Any], hparams: dict[str, Any], seed: int, metric: Metric | None = None
) -> Simulation:
    """Run the whole search. Without a `metric`, trials are as good as chance has it. Raises BadSearch."""
    run = _Run(searcher, hparams, seed, metric)
    over = run.to_the_end()
    has_length = run.longest > 0
    lengths = Counter(run.reached.values())
    return Simulation(
        trials=len(run.reached),
        lengths=dict(sorted(lengths.items())),
        units=sum(run.reached.values()) if has_length else None,
        span=run.now if has_length else None,
        at_once=run.at_once,
        brackets=tree(run.state),
        best=run.best if metric else None,
        over=over,
        state=run.state,
    )


class _Run:
    """A queue of validations by virtual time; those at the same time in the order of their making."""

    def __init__(
        self, searcher: dict[str, Any], hparams: dict[str, Any], seed: int, metric: Metric | None
    ) -> None:
        self.state, self._first = search.start(searcher, hparams, seed)
        self.longest = halving.max_time(searcher) if search.has_length(searcher) else 0
        self.now, self.at_once = 0, 0
        self.reached: dict[str, int] = {}
        self.best: float | None = None
        self._metric, self._chance = metric, Draws(f"{seed}:chance")
        self._hparams: dict[str, dict[str, Any]] = {}
        self._larger = self.state["searcher"]["smaller_is_better"] is False
        self._queue: list[tuple[int, int, str, int]] = []
        self._running = 0

    def to_the_end(self) -> Shutdown:
        over = self._do(self._first)
        while over is None:
            self.now, _, name, units = heapq.heappop(self._queue)
            self._running -= 1
            over = self._arrived(name, units)
        return over

    def _arrived(self, name: str, units: int) -> Shutdown | None:
        self.reached[name] = units
        event = ValidationReported(name, self._measured(name, units), units, at=self.now)
        operations = search.advance(self.state, event)
        number = number_of(self.state, name)
        if number is not None and not self._bracket(number)["rungs"]:
            operations += search.advance(self.state, TrialExited(name, ExitReason.COMPLETED, at=self.now))
        return self._do(operations)

    def _do(self, operations: list[Operation]) -> Shutdown | None:
        over: Shutdown | None = None
        on: dict[str, None] = {}  # in this order
        left = list(operations)
        for operation in left:
            if isinstance(operation, (Create, Again, Promote)):
                on[operation.request_id] = None
            if isinstance(operation, Create):
                self._hparams[operation.request_id] = operation.hparams
                self.reached[operation.request_id] = 0
            elif isinstance(operation, Stop):
                exited = TrialExited(operation.request_id, ExitReason.COMPLETED, at=self.now)
                left += search.advance(self.state, exited)
            elif isinstance(operation, Shutdown):
                over = operation
        for name in on:
            self._run(name)
        self.at_once = max(self.at_once, self._running)
        return over

    def _run(self, name: str) -> None:
        """Towards the next rung, if it was not parked or stopped again in the same moment."""
        number = number_of(self.state, name)
        assert number is not None, "the search asked for it"
        trial = self.state["trials"][number]
        if trial[STANDING] != Standing.ON:
            return
        rungs = self._bracket(number)["rungs"]
        units = rungs[trial[RUNG]]["units"] if rungs else self.longest
        until = self.now + units - self.reached[name]
        heapq.heappush(self._queue, (until, number, name, units))
        self._running += 1

    def _measured(self, name: str, units: int) -> float:
        if self._metric is None:
            return self._chance.uniform(0.0, 1.0)
        metric = self._metric(self._hparams[name], units)
        if not math.isnan(metric):
            better = max if self._larger else min
            self.best = metric if self.best is None else better(self.best, metric)
        return metric

    def _bracket(self, number: int) -> dict[str, Any]:
        bracket: dict[str, Any] = self.state["brackets"][self.state["trials"][number][BRACKET]]
        return bracket
