"""How much each hyperparameter matters, by ranks: Kruskal and Wallis' effect size, and Spearman's correlation.

Epsilon squared = (H - k + 1) / (n - k), for the H of Kruskal and Wallis over k groups of n trials: the share of the
differences in rank that the groups explain, less what chance alone would. Numbers are grouped into equally full parts
of their range, so an optimum in the middle counts as much as one at an end. Spearman's rho has the direction.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from metrics.hparam_axes import Axis, Kind
from metrics.packing import Floats, Integers
from metrics.sweep import Sweep
from metrics.traces import BLUE, Figure

#: numbers are parted into so many groups at most, each with at least LEAST_OF_A_GROUP trials
MOST_GROUPS = 5
LEAST_OF_A_GROUP = 4
#: of fewer trials nothing is said
LEAST_TRIALS = 10
_BAR = BLUE


@dataclass(frozen=True)
class Importance:
    """`share`: epsilon squared, 0 to 1; `rho`: -1 to 1, None for categories and where it is undefined."""

    name: str
    share: float
    rho: float | None
    trials: int


def measured(of: Sweep, axes: Sequence[Axis]) -> list[Importance]:
    """The most important first; those of which too few trials have a value are left out."""
    found = []
    for axis in axes:
        places = axis.places(of.hparams)
        known = np.isfinite(places)
        if known.sum() < LEAST_TRIALS:
            continue
        places, values = places[known], of.values[known]
        rho = None if axis.kind == Kind.CATEGORY else spearman(places, values)
        groups = places.astype(np.int64) if axis.kind == Kind.CATEGORY else _parts(places)
        found.append(Importance(axis.name, epsilon_squared(groups, values), rho, int(known.sum())))
    return sorted(found, key=lambda each: (-each.share, each.name))


def ranks(values: Floats) -> Floats:
    """From 1; equals share the mean of theirs."""
    _, inverse, counts = np.unique(values, return_inverse=True, return_counts=True)
    last = np.cumsum(counts)
    return (last - (counts - 1) / 2)[inverse]


def spearman(one: Floats, other: Floats) -> float | None:
    """None where either never changes."""
    first, second = ranks(one), ranks(other)
    spread = first.std() * second.std()
    if not spread:
        return None
    return float(((first - first.mean()) * (second - second.mean())).mean() / spread)


def epsilon_squared(groups: Integers, values: Floats) -> float:
    """0 where there are too few trials, one group, or one value."""
    names, members = np.unique(groups, return_inverse=True)
    count, parts = len(values), len(names)
    ranked = ranks(values)
    variance = ranked.var(ddof=1) if count > 1 else 0.0
    if parts < 2 or count <= parts or not variance:
        return 0.0
    sizes = np.bincount(members)
    means = np.bincount(members, ranked) / sizes
    h = float((sizes * (means - ranked.mean()) ** 2).sum() / variance)
    return min(1.0, max(0.0, (h - parts + 1) / (count - parts)))


def _parts(places: Floats) -> Integers:
    """Equally full parts; equal numbers stand in one."""
    distinct = np.unique(places)
    parts = min(MOST_GROUPS, max(2, len(places) // LEAST_OF_A_GROUP))
    if len(distinct) <= parts:
        return np.searchsorted(distinct, places).astype(np.int64)
    edges = np.quantile(places, np.linspace(0, 1, parts + 1)[1:-1])
    return np.searchsorted(np.unique(edges), places, side="right").astype(np.int64)


def figure(of: Sweep, axes: Sequence[Axis]) -> Figure | None:
    """A bar for each, the longest on top; None where there are too few trials to say anything."""
    found = measured(of, axes)
    if not found:
        return None
    upwards = found[::-1]
    name = f"importance for {of.metric}"
    return {
        "name": name,
        "note": f"{len(of):,} of {of.total:,} trials",
        "described": f"{name}: " + ", ".join(f"{each.name} {each.share:.2f}" for each in found[:10]),
        "tall": 90 + 26 * len(found),
        "data": [
            {
                "type": "bar",
                "orientation": "h",
                "x": [round(each.share, 4) for each in upwards],
                "y": list(range(len(upwards))),
                "text": [f"{each.share:.2f}" for each in upwards],
                "textposition": "outside",
                "cliponaxis": False,
                "hoverinfo": "skip",
                "marker": {"color": _BAR},
            }
        ],
        "layout": {
            "showlegend": False,
            "xaxis": {
                "title": {"text": "share of the rank variance that it explains (epsilon squared)"},
                "range": [0, max(0.1, min(1.0, 1.15 * found[0].share))],
                "fixedrange": True,
            },
            "yaxis": {
                "tickvals": list(range(len(upwards))),
                "ticktext": [each.name for each in upwards],
                "automargin": True,
                "fixedrange": True,
            },
        },
        "table": {
            "caption": name,
            "heads": ["Hyperparameter", "Epsilon squared", "Spearman's rho", "Trials"],
            "rows": [
                [
                    each.name,
                    f"{each.share:.3f}",
                    "none" if each.rho is None else f"{each.rho:+.3f}",
                    str(each.trials),
                ]
                for each in found
            ],
        },
    }
