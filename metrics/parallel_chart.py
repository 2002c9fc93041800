"""Parallel coordinates: a line per trial through its hyperparameters to its metric, colored by how good it is.

Drawn as plain lines: Plotly's own kind needs WebGL and code made at run time, which the pages' policy forbids.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from metrics.hparam_axes import Axis, Bounds, Kind
from metrics.packing import Floats
from metrics.sweep import COLORS, Sweep, table_of
from metrics.traces import Figure

_FAINT = "#8a877f"
_AXIS = "#8a877f"
_TICKS = 5
#: in what is brushed, the name of the last axis
METRIC = ""


class Scale:
    """One axis from 0 (its foot) to 1. `word` says what stands at a height."""

    def __init__(self, name: str, kind: Kind, places: Floats, categories: Sequence[str] = ()) -> None:
        self.name, self.kind, self.categories = name, kind, categories
        known = places[np.isfinite(places)]
        self.low, self.high = (float(known.min()), float(known.max())) if len(known) else (0.0, 1.0)
        if kind == Kind.CATEGORY:
            self.low, self.high = -0.5, len(categories) - 0.5
        elif self.high == self.low:
            self.low, self.high = self.low - 0.5, self.high + 0.5

    def heights(self, places: Floats) -> Floats:
        return (places - self.low) / (self.high - self.low)

    def ticks(self) -> list[tuple[float, str]]:
        if self.kind == Kind.CATEGORY:
            return [
                (float(self.heights(np.array([place]))[0]), word)
                for place, word in enumerate(self.categories)
            ]
        at = [tick / (_TICKS - 1) for tick in range(_TICKS)]
        return [(height, self._word(self.low + height * (self.high - self.low))) for height in at]

    def _word(self, place: float) -> str:
        return f"{10**place if self.kind == Kind.LOG else place:.3g}"

    def brush(self, bounds: Bounds) -> list[tuple[float, float]]:
        """Foot and top of each part that is brushed."""
        if bounds.among:
            wanted = [place for place, word in enumerate(self.categories) if word in bounds.among]
            half = 0.5 / max(1, len(self.categories))
            middles = self.heights(np.array(wanted, np.float64))
            return [(float(middle) - half, float(middle) + half) for middle in middles]
        ends = [
            usual if end is None else self._height_of(end)
            for end, usual in ((bounds.low, 0.0), (bounds.high, 1.0))
        ]
        low, high = np.clip(ends, 0.0, 1.0)
        return [(float(low), float(high))]

    def _height_of(self, value: float) -> float:
        place = value
        if self.kind == Kind.LOG:
            place = float(np.log10(value)) if value > 0 else -np.inf
        return (place - self.low) / (self.high - self.low)

    def told(self) -> dict[str, Any]:
        """For the page, which turns a stretch that somebody drags over into bounds."""
        words = {"categories": list(self.categories)} if self.kind == Kind.CATEGORY else {}
        return {"name": self.name, "kind": self.kind.value, "low": self.low, "high": self.high, **words}


def figure(of: Sweep, axes: Sequence[Axis], brushed: Mapping[str, Bounds], *, is_log: bool) -> Figure:
    """`brushed`: by name of the hyperparameter, METRIC for the metric; other trials stay as faint lines."""
    shown = of.drawn()
    scales = [Scale(axis.name, axis.kind, axis.places(shown.hparams), axis.categories) for axis in axes]
    metric = np.log10(shown.values) if is_log else shown.values
    scales.append(Scale(METRIC, Kind.LOG if is_log else Kind.NUMBER, metric))
    heights = np.column_stack(
        [
            *(scale.heights(axis.places(shown.hparams)) for scale, axis in zip(scales, axes, strict=False)),
            scales[-1].heights(metric),
        ]
    )
    chosen = holding(shown, brushed)
    names = [axis.name for axis in axes]
    kept = of.taken(holding(of, brushed))
    words = f"{len(kept):,} of {len(of):,} trials selected" if brushed else of.note
    best = f", the best {kept.values[0]:.6g} by trial {kept.trials[0]}" if len(kept) else ""
    return {
        "name": f"{of.metric} and hyperparameters",
        "note": words,
        "described": f"parallel coordinates of {', '.join(names)} and {of.metric}: {words}{best}",
        "tall": 460,
        "data": _lines(shown, heights, chosen),
        "layout": _layout([*names, of.metric], scales, brushed),
        "brushes": [scale.told() for scale in scales],
        "table": table_of(
            kept, names, f"{of.metric} and hyperparameters" + (", selected" if brushed else "")
        ),
    }


def holding(of: Sweep, brushed: Mapping[str, Bounds]) -> Any:
    """Which of the trials are inside of all that is brushed."""
    kept = np.ones(len(of), np.bool_)
    for name, bounds in brushed.items():
        if name == METRIC:
            kept &= np.array([bounds.hold_number(float(value)) for value in of.values], np.bool_)
        else:
            kept &= np.array([bounds.hold(trial, name) for trial in of.hparams], np.bool_)
    return kept


def _lines(of: Sweep, heights: Floats, chosen: Any) -> list[dict[str, Any]]:
    """One trace per color, the best on top: a trace per trial would take Plotly seconds."""
    colors = of.colors()
    many = len(of) > 200
    found = []
    if not chosen.all():
        found.append(_trace(of, heights, np.flatnonzero(~chosen), _FAINT, 0.12 if many else 0.25, 1.0))
    for color in range(len(COLORS) - 1, -1, -1):
        rows = np.flatnonzero(chosen & (colors == color))
        if len(rows):
            found.append(
                _trace(of, heights, rows[::-1], COLORS[color], 0.45 if many else 0.85, 1.0 if many else 1.5)
            )
    best = np.flatnonzero(chosen)[:1]
    if len(best):
        found.append(_trace(of, heights, best, COLORS[0], 1.0, 3.0))
    return found


def _trace(of: Sweep, heights: Floats, rows: Any, color: str, opacity: float, width: float) -> dict[str, Any]:
    """The lines of these trials, with a gap between two."""
    count = heights.shape[1]
    gap = np.full((len(rows), 1), np.nan)
    y = np.hstack([heights[rows], gap]).ravel()
    x = np.tile(np.append(np.arange(count, dtype=np.float64), np.nan), len(rows))
    return {
        "type": "scatter",
        "mode": "lines",
        "x": [None if np.isnan(each) else int(each) for each in x],
        "y": [None if np.isnan(each) else round(float(each), 4) for each in y],
        "customdata": np.repeat(of.trials[rows], count + 1).tolist(),
        "hovertemplate": "trial %{customdata}<extra></extra>",
        "connectgaps": False,
        "opacity": opacity,
        "line": {"color": color, "width": width},
    }


def _layout(names: list[str], scales: Sequence[Scale], brushed: Mapping[str, Bounds]) -> dict[str, Any]:
    count = len(scales)
    shapes = [
        {
            "type": "line", "x0": place, "x1": place, "y0": 0, "y1": 1, "line": {"color": _AXIS, "width": 1},
        }
        for place in range(count)
    ]  # fmt: skip
    for place, scale in enumerate(scales):
        for low, high in scale.brush(brushed[scale.name]) if scale.name in brushed else []:
            shapes.append(
                {
                    "type": "rect", "x0": place - 0.05, "x1": place + 0.05, "y0": low, "y1": high,
                    "fillcolor": _AXIS, "opacity": 0.45, "line": {"color": _AXIS, "width": 1},
                }
            )  # fmt: skip
    annotations = [
        {
            "x": place, "y": height, "text": word, "showarrow": False, "font": {"size": 10},
            "xanchor": "right" if place == count - 1 else "left", "yanchor": "middle",
            "xshift": -4 if place == count - 1 else 4,
        }
        for place, scale in enumerate(scales)
        for height, word in scale.ticks()
    ]  # fmt: skip
    return {
        "showlegend": False,
        "hovermode": "closest",
        "dragmode": False,
        "xaxis": {
            "range": [-0.12, count - 1 + 0.12],
            "tickvals": list(range(count)),
            "ticktext": names,
            "showgrid": False,
            "zeroline": False,
            "fixedrange": True,
        },
        "yaxis": {"visible": False, "range": [-0.04, 1.04], "fixedrange": True},
        "shapes": shapes,
        "annotations": annotations,
    }
