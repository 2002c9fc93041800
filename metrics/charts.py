"""Plotly figures as plain dicts. The page gives them its colours, fonts and theme; here are data and axes."""

from __future__ import annotations

from typing import Any

import numpy as np

from metrics import series
from metrics.series import Floats, Series

#: Groups first in the list of a trial's figures; the user's own follow by name.
FIRST_GROUPS = ["training", "validation"]

Figure = dict[str, Any]


def trial_figures(
    trial_id: int, *, highlight: str | None = None, points: int = series.DEFAULT_POINTS
) -> list[Figure]:
    """A figure per metric, its groups as traces over steps; `highlight` (the searcher's metric) comes first.

    Each is {"name", "data", "layout", "points", "total"}, where points < total says that it was reduced (to the
    envelope of its extremes).
    """
    traces: dict[str, list[tuple[str, Series]]] = {}
    for group in _ordered(series.groups(trial_id)):
        for each in series.read(trial_id, group, points=points):
            traces.setdefault(each.name, []).append((group, each))
    names = sorted(traces, key=lambda name: (name != highlight, name))
    return [metric_figure(name, traces[name], is_highlighted=name == highlight) for name in names]


def _ordered(groups: list[str]) -> list[str]:
    return sorted(groups, key=lambda group: (group not in FIRST_GROUPS, group))


def metric_figure(name: str, groups: list[tuple[str, Series]], *, is_highlighted: bool = False) -> Figure:
    """One metric over steps, a line per group."""
    total = sum(each.total for _, each in groups)
    shown = sum(len(each.steps) for _, each in groups)
    return {
        "name": name,
        "highlight": is_highlighted,
        "points": shown,
        "total": total,
        "data": [_trace(group, each) for group, each in groups],
        "layout": {
            "title": {"text": name, "x": 0, "xanchor": "left"},
            "showlegend": len(groups) > 1,
            "legend": {"orientation": "h", "x": 1, "xanchor": "right", "y": 1.12},
            "hovermode": "x unified",
            "paper_bgcolor": "rgba(0,0,0,0)",
            "plot_bgcolor": "rgba(0,0,0,0)",
            "margin": {"l": 56, "r": 16, "t": 44, "b": 44},
            "xaxis": {"title": {"text": "steps completed"}, "rangemode": "tozero"},
            "yaxis": {"title": {"text": name}, "automargin": True},
            "uirevision": name,  # zoom and hidden traces stay when new points come
        },
    }


def _trace(group: str, each: Series) -> dict[str, Any]:
    few = len(each.steps) <= 40
    return {
        "type": "scatter",
        "mode": "lines+markers" if few else "lines",
        "name": group,
        "x": plain(each.steps),
        "y": plain(each.values),
        "connectgaps": False,
        "line": {"width": 1.5},
        "marker": {"size": 4},
    }


def plain(values: Floats) -> list[float | int | None]:
    """For JSON, which has neither NaN nor infinities: those become gaps. Whole numbers lose their `.0`."""
    return [
        None if not np.isfinite(value) else int(value) if value.is_integer() and abs(value) < 2**53 else value
        for value in values.tolist()
    ]
