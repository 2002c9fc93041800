"""Trials of one search with a value each: what the charts over hyperparameters are made of."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from metrics import series
from metrics.comparisons import Metric
from metrics.hparam_axes import Flat, value_text
from metrics.packing import Floats, Integers

#: of more trials the best are drawn, and the chart says so
MOST_DRAWN = 3000
#: rows of a chart's table
MOST_ROWS = 1000
#: best to worst; both ends and the middle read on light and dark paper
COLORS = (
    "#2f6fd0", "#4b7fc4", "#6790b8", "#8399a6", "#94968c", "#a2946c", "#b0914c", "#bd8d29", "#c98a06",
)  # fmt: skip


@dataclass(frozen=True)
class Sweep:
    """Best first, all values finite. `total`: the trials of the experiment, also those without a value."""

    metric: str
    is_smaller_better: bool
    trials: Integers
    values: Floats
    hparams: list[Flat]
    total: int

    def __len__(self) -> int:
        return len(self.trials)

    def taken(self, rows: npt.NDArray[Any]) -> Sweep:
        places = np.flatnonzero(rows) if rows.dtype == np.bool_ else rows
        hparams = [self.hparams[place] for place in places]
        return replace(self, trials=self.trials[places], values=self.values[places], hparams=hparams)

    def drawn(self) -> Sweep:
        return self if len(self) <= MOST_DRAWN else self.taken(np.arange(MOST_DRAWN))

    def colors(self) -> npt.NDArray[np.intp]:
        """Return each trial's place in COLORS, by rank: by value, one outlier would make all others look alike."""
        return np.arange(len(self)) * len(COLORS) // max(1, len(self))

    @property
    def note(self) -> str:
        """How many trials a chart stands for."""
        drawn = min(len(self), MOST_DRAWN)
        best = "the best " if drawn < len(self) else ""
        return f"{best}{drawn:,} of {self.total:,} trials"


def sweep(
    metric: str, is_smaller_better: bool, rows: Sequence[tuple[int, float | None, Flat]], total: int
) -> Sweep:
    """Build a sweep from (trial, value, hyperparameters); drops rows without a finite value; equals keep order."""
    kept = [row for row in rows if row[1] is not None and np.isfinite(row[1])]
    values = np.array([row[1] for row in kept], np.float64)
    order = np.argsort(values if is_smaller_better else -values, kind="stable")
    trials = np.array([row[0] for row in kept], np.int64)
    hparams = [kept[place][2] for place in order]
    return Sweep(metric, is_smaller_better, trials[order], values[order], hparams, total)


def at_step(trial_ids: Sequence[int], metric: Metric, step: int, margin: int) -> dict[int, float]:
    """Return each trial's value reported nearest to the step (the later of two); none outside the margin."""
    found: dict[int, float] = {}
    near = series.of_trials(
        trial_ids,
        metric.group,
        metric.name,
        first_step=step - margin,
        last_step=step + margin,
        points=max(4, 2 * margin + 1),  # all there can be
    )
    for trial, each in near.items():
        nearest = int(np.lexsort((-each.steps, np.abs(each.steps - step)))[0])
        found[trial] = float(each.values[nearest])
    return found


def table_of(of: Sweep, names: Sequence[str], caption: str) -> dict[str, Any]:
    """What a chart shows, as a table: the trial, its value, these hyperparameters; best first."""
    shown = min(len(of), MOST_ROWS)
    rows = [
        [int(trial), f"{value:.6g}", *(value_text(trial_hparams, name) for name in names)]
        for trial, value, trial_hparams in zip(
            of.trials[:shown], of.values[:shown], of.hparams[:shown], strict=True
        )
    ]
    cut = f", the best {shown:,}" if shown < len(of) else ""
    return {"caption": f"{caption}{cut}", "heads": ["Trial", of.metric, *names], "rows": rows}
