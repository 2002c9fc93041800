"""What a search would do: how many trials train how long, from its config alone."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import searching
from accounts.refusals import Refusal
from experiments.config import check
from searching import hyperparameters
from searching.rungs import units_expected
from searching.simulate import Simulation, simulate
from searching.state import Outcome

#: a search of more trials is not simulated: it would take the web process more than a second
MOST_TRIALS = 10_000
_ONE = {"batches": "batch", "records": "record", "epochs": "epoch", "units": "unit"}


@dataclass(frozen=True, slots=True)
class Step:
    """One rung: the length that it is at, how many trials came to it, and how many of those went on."""

    units: int
    trials: int
    promoted: int


@dataclass(frozen=True, slots=True)
class Preview:
    """`unit`: of all lengths: batches, records, epochs, units, or the name of the time metric.

    `lengths`: units -> trials that end there; 0 where a trial's length is unknown. `units`: trained by all trials;
    `expected`: by them if each rung keeps just its share; `span`: from the first start to the last end, if hosts had
    room for `at_once` trials; all three None if it is unknown.
    """

    searcher: dict[str, Any]
    unit: str
    trials: int
    at_once: int
    lengths: dict[int, int]
    brackets: list[list[Step]]
    units: int | None
    expected: int | None
    span: int | None
    slots_per_trial: int


def of(config: dict[str, Any], seed: int = 0, most: int = MOST_TRIALS) -> Preview:
    """Simulates the search of a config, which needs no entrypoint, of `most` trials at most.

    Raises ConfigError, BadSearch or Refusal.
    """
    effective = check(config, managed=False).effective()
    searcher, hparams = effective["searcher"], effective.get("hyperparameters") or {}
    searcher = {name: value for name, value in searcher.items() if value is not None}
    if searcher["name"] == "custom":
        raise searching.BadSearch(
            "searcher.name", "custom", "a searcher that the server runs; this one is run by its user"
        )
    _check_size(searcher, hparams, most)
    run = simulate(searcher, hparams, seed)
    return Preview(
        searcher=searcher,
        unit=unit_of(searcher),
        trials=run.trials,
        at_once=run.at_once,
        lengths=run.lengths,
        brackets=[steps for steps in _steps(run) if steps],
        units=run.units,
        expected=_expected(run),
        span=run.span,
        slots_per_trial=int(effective["resources"]["slots_per_trial"]),
    )


def unit_of(searcher: dict[str, Any]) -> str:
    """What the lengths of a search are counted in."""
    if searcher.get("time_metric"):
        return str(searcher["time_metric"])
    length = searcher.get("max_length")
    return str(next(iter(length))) if isinstance(length, dict) else "units"


def in_unit(length: int, unit: str) -> str:
    """`1 epoch`, `22 batches`; a time metric keeps its name."""
    return f"{length:,} {_ONE.get(unit, unit) if length == 1 else unit}"


def _expected(run: Simulation) -> int | None:
    if run.units is None:
        return None
    expected = units_expected(run.brackets, max(run.lengths, default=0))
    return None if expected is None else round(expected)


def _steps(run: Simulation) -> list[list[Step]]:
    return [
        [
            Step(
                rung.units,
                len(rung.entries),
                sum(entry.outcome == Outcome.PROMOTED for entry in rung.entries),
            )
            for rung in bracket.rungs
        ]
        for bracket in run.brackets
    ]


def _check_size(searcher: dict[str, Any], hparams: dict[str, Any], most: int) -> None:
    is_grid = searcher["name"] == "grid"
    hyperparameters.check(hparams, grid=is_grid)
    trials = hyperparameters.grid_size(hparams) if is_grid else int(searcher.get("max_trials", 1))
    if trials > most:
        raise Refusal(f"The search has {trials:,} trials; a preview can simulate at most {most:,}.")
