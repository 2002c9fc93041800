"""A metric over hyperparameters: over each by itself as points, over pairs as a map of medians, and how much each
matters, by ranks: Kruskal and Wallis' effect size, and Spearman's correlation.

Epsilon squared = (H - k + 1) / (n - k), for the H of Kruskal and Wallis over k groups of n trials: the share of the
differences in rank that the groups explain, less what chance alone would. Numbers are grouped into equally full parts
of their range, so an optimum in the middle counts as much as one at an end. Spearman's rho has the direction.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations, pairwise
from typing import Any

import numpy as np

from metrics.hparam_axes import Axis, Kind
from metrics.packing import Floats, Integers
from metrics.sweep import COLORS, Sweep, table_of
from metrics.traces import BLUE, GRAY, Figure, plain, value_axis

#: cells of a map along an axis of numbers: as many as leave some trials for each, on average
LEAST_CELLS, MOST_CELLS = 3, 8
_BEST, _POINT = BLUE, GRAY
_FEW = 300
#: numbers are parted into so many groups at most, each with at least LEAST_OF_A_GROUP trials
MOST_GROUPS = 5
LEAST_OF_A_GROUP = 4
#: of fewer trials nothing is said
LEAST_TRIALS = 10


def scatter(of: Sweep, axis: Axis, *, is_log: bool) -> Figure:
    """The metric over one hyperparameter; the best trial is marked by shape. `is_log`: the metric's scale."""
    shown = of.drawn()
    places = axis.places(shown.hparams)
    name = f"{of.metric} by {axis.name}"
    layout = {
        "showlegend": False,
        "hovermode": "closest",
        "xaxis": {**layout_of(axis, places), "title": {"text": axis.name}},
        "yaxis": value_axis(of.metric, is_log=is_log),
        "uirevision": f"{name} {is_log}",
    }
    at = 10**places if axis.kind == Kind.LOG else places
    few = len(shown) <= _FEW
    return {
        "name": name,
        "note": of.note,
        "described": _described(name, of, axis),
        "data": [
            _points(
                of,
                at,
                slice(1, len(shown)),
                {"color": _POINT, "size": 6 if few else 4, "opacity": 0.75 if few else 0.5},
            ),
            _points(of, at, slice(0, 1), {"color": _BEST, "size": 13, "symbol": "star"}),
        ],
        "layout": layout,
        "table": table_of(of, [axis.name], name),
    }


def _points(of: Sweep, at: Floats, rows: slice, marker: dict[str, Any]) -> dict[str, Any]:
    """Points of one look: a look for each would take Plotly many times as long."""
    return {
        "type": "scatter",
        "mode": "markers",
        "x": plain(at[rows]),
        "y": plain(of.values[rows]),
        "customdata": of.trials[rows].tolist(),
        "hovertemplate": "trial %{customdata}: %{y:.6~g}<extra></extra>",
        "marker": marker,
    }


def _described(name: str, of: Sweep, axis: Axis) -> str:
    best = axis.places(of.hparams[:1])[0]
    where = axis.categories[int(best)] if axis.kind == Kind.CATEGORY and np.isfinite(best) else None
    number = 10**best if axis.kind == Kind.LOG else best
    at = where if where is not None else f"{number:.6g}" if np.isfinite(number) else "no value"
    return f"{name}: {of.note}, best {of.values[0]:.6g} at {at}"


def layout_of(axis: Axis, places: Floats) -> dict[str, Any]:
    """The axis as Plotly draws it: categories stand at whole numbers, logarithms in their own numbers."""
    if axis.kind == Kind.CATEGORY:
        ends = [-0.5, len(axis.categories) - 0.5]
        return {
            "tickvals": list(range(len(axis.categories))),
            "ticktext": list(axis.categories),
            "range": ends,
        }
    if axis.kind == Kind.LOG:
        return {"type": "log", "dtick": 1 if np.ptp(places[np.isfinite(places)]) > 2 else "D2"}
    return {"type": "linear"}


#: of each trial its cell along an axis, -1 for none, and the words of the cells
Cells = tuple[Integers, list[str]]


def heat_maps(of: Sweep, axes: Sequence[Axis]) -> list[Figure]:
    """A map of each pair of axes: the median of the trials in each cell, on one scale of colors for all."""
    ends = np.quantile(of.values, [0.0, 0.9] if of.is_smaller_better else [0.1, 1.0])
    cells = [(axis, _cells(axis, of)) for axis in axes]
    return [_heat_map(of, first, second, ends) for first, second in combinations(cells, 2)]


def _parted(of: Sweep, rows: Integers, columns: Integers) -> dict[tuple[int, int], Floats]:
    """(row, column) -> the values of the trials there."""
    known = np.flatnonzero((rows >= 0) & (columns >= 0))
    if not len(known):
        return {}
    width = int(columns.max()) + 1
    places = rows[known] * width + columns[known]
    order = np.argsort(places, kind="stable")
    cells, starts = np.unique(places[order], return_index=True)
    parts = np.split(of.values[known][order], starts[1:])
    return {divmod(int(cell), width): part for cell, part in zip(cells, parts, strict=True)}


def _heat_map(of: Sweep, one: tuple[Axis, Cells], other: tuple[Axis, Cells], ends: Floats) -> Figure:
    (across, (columns, column_words)), (up, (rows, row_words)) = one, other
    cells = _parted(of, rows, columns)
    medians: list[list[float | None]] = [[None] * len(column_words) for _ in row_words]
    counts = [[0] * len(column_words) for _ in row_words]
    for (row, column), values in cells.items():
        medians[row][column], counts[row][column] = float(np.median(values)), len(values)
    name = f"{up.name} by {across.name}"
    colors = COLORS if of.is_smaller_better else COLORS[::-1]
    extreme = np.min if of.is_smaller_better else np.max
    pick = min if of.is_smaller_better else max
    best = pick(cells, key=lambda cell: extreme(cells[cell])) if cells else None
    told = (
        f", best {extreme(cells[best]):.6g} at {up.name} {row_words[best[0]]} and {across.name} {column_words[best[1]]}"
        if best
        else ""
    )

    def numbers(values: Floats) -> list[str]:
        return [f"{np.median(values):.6g}", f"{extreme(values):.6g}", str(len(values))]

    return {
        "name": name,
        "note": f"{len(of):,} of {of.total:,} trials",
        "described": f"median {of.metric} over {name}{told}",
        "data": [_heat(medians, counts, ends, colors)],
        "layout": {
            "showlegend": False,
            "xaxis": {
                "title": {"text": across.name},
                **_ticks(column_words, across.kind == Kind.CATEGORY),
                "fixedrange": True,
            },
            "yaxis": {
                "title": {"text": up.name, "standoff": 8},
                **_ticks(row_words, up.kind == Kind.CATEGORY),
                "automargin": True,
                "fixedrange": True,
            },
        },
        "table": {
            "caption": f"median {of.metric} over {name}",
            "heads": [up.name, across.name, f"median {of.metric}", "best", "trials"],
            "rows": [
                [row_words[row], column_words[column], *numbers(values)]
                for (row, column), values in sorted(cells.items())
            ],
        },
    }


def _heat(
    medians: list[list[float | None]], counts: list[list[int]], ends: Floats, colors: Sequence[str]
) -> dict[str, Any]:
    """The cells, row by row from below; `ends`: where the scale of colors begins and ends, for all maps the same."""
    low, high = float(ends[0]), float(ends[1])
    return {
        "type": "heatmap",
        "x": list(range(len(medians[0]) if medians else 0)),
        "y": list(range(len(medians))),
        "z": medians,
        "customdata": counts,
        "hoverongaps": False,
        "zmin": low,
        "zmax": high if high > low else low + 1e-9,
        "colorscale": [[place / (len(colors) - 1), each] for place, each in enumerate(colors)],
        "hovertemplate": "median %{z:.6~g} of %{customdata} trials<extra></extra>",
        "colorbar": {"thickness": 10, "outlinewidth": 0, "tickfont": {"size": 10}, "nticks": 4},
        "xgap": 1,
        "ygap": 1,
    }


def _ticks(words: list[str], is_category: bool) -> dict[str, Any]:
    """Every second part of a range has its word, so that they do not run into each other."""
    step = 1 if is_category or len(words) <= 4 else 2
    places = list(range(0, len(words), step))
    return {
        "tickvals": places,
        "ticktext": [words[place] for place in places],
        "showgrid": False,
        "zeroline": False,
    }


def _cells(axis: Axis, of: Sweep) -> Cells:
    """Return each trial's cell along the axis (-1 for none), and the words of the cells: a category or a range."""
    places = axis.places(of.hparams)
    known = np.isfinite(places)
    if axis.kind == Kind.CATEGORY:
        return np.where(known, np.nan_to_num(places), -1).astype(np.int64), list(axis.categories)
    distinct = np.unique(places[known])
    count = int(np.clip(np.sqrt(len(of) / 2), LEAST_CELLS, MOST_CELLS))
    if len(distinct) <= count:
        cells = np.searchsorted(distinct, np.nan_to_num(places))
        return np.where(known, cells, -1).astype(np.int64), [_word(axis, each) for each in distinct]
    edges = np.linspace(distinct[0], distinct[-1], count + 1)
    cells = np.clip(np.searchsorted(edges, np.nan_to_num(places), side="right") - 1, 0, count - 1)
    words = [f"{_word(axis, low)} to {_word(axis, high)}" for low, high in pairwise(edges)]
    return np.where(known, cells, -1).astype(np.int64), words


def _word(axis: Axis, place: float) -> str:
    value = 10**place if axis.kind == Kind.LOG else place
    return f"{value:.2g}" if abs(value) < 100 else f"{value:.3g}"


@dataclass(frozen=True)
class Importance:
    """`share`: epsilon squared, 0 to 1; `rho`: -1 to 1, None for categories and where it is undefined."""

    name: str
    share: float
    rho: float | None
    trials: int


def importances(of: Sweep, axes: Sequence[Axis]) -> list[Importance]:
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


def importance_bars(of: Sweep, axes: Sequence[Axis]) -> Figure | None:
    """A bar for each, the longest on top; None where there are too few trials to say anything."""
    found = importances(of, axes)
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
                "marker": {"color": BLUE},
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
