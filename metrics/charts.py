"""Plotly figures as plain dicts. The page gives them its colours, fonts and theme; here are data and axes."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

import numpy as np

from metrics import series
from metrics.packing import Floats
from metrics.series import Series

#: Groups first in the list of a trial's figures; the user's own follow by name.
FIRST_GROUPS = ["training", "validation"]

_PREFIX = re.compile(r"^(t|train|training|v|val|validation)[_/.](?=.)")
#: Curves differ by line and mark, not by colour alone; both read on light and dark paper.
_STYLES: dict[str, dict[str, Any]] = {
    "training": {"line": {"color": "#7d858c", "width": 1.5}, "mode": "lines"},
    "validation": {"line": {"color": "#2f6fd0", "width": 2}, "mode": "lines+markers", "marker": {"size": 6}},
}
_OTHER: dict[str, Any] = {
    "line": {"color": "#c98a06", "width": 1.5, "dash": "dot"},
    "mode": "lines+markers",
    "marker": {"size": 4},
}

Figure = dict[str, Any]


def stem(name: str) -> str:
    """What a metric measures: `loss` for `train_loss` and for `val/loss`, which share a chart (features.md 4.6)."""
    return _PREFIX.sub("", name)


def trial_figures(
    trial_id: int,
    *,
    highlight: str | None = None,
    points: int = series.DEFAULT_POINTS,
    most: int | None = None,
) -> list[Figure]:
    """A figure per metric, its groups as traces over steps; `highlight` (the searcher's metric) comes first.

    `train_loss` and `val_loss` share the chart `loss` (features.md 4.6). Only the first `most` are read.

    Each is {"name", "data", "layout", "points", "total"}, where points < total says that it was reduced (to the
    envelope of its extremes).
    """
    known, first = series.names(trial_id), stem(highlight or "")
    stems = {stem(name) for names in known.values() for name in names}
    chosen = sorted(stems, key=lambda name: (name != first, name))[:most]
    traces: dict[str, list[tuple[str, Series]]] = {}
    for group in ordered(known):
        names = [name for name in known[group] if stem(name) in chosen]
        for each in series.read(trial_id, group, names, points=points):
            traces.setdefault(stem(each.name), []).append((group, each))
    return [
        metric_figure(name, traces[name], is_highlighted=name == first) for name in chosen if name in traces
    ]


def ordered(groups: Iterable[str]) -> list[str]:
    """Training and validation first."""
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
            "title": {"text": name, "font": {"size": 13}},
            "height": 320,
            "showlegend": True,
            "legend": {"orientation": "h", "y": 1, "yanchor": "bottom", "font": {"size": 11}},
            "hovermode": "x unified",
            "paper_bgcolor": "rgba(0,0,0,0)",
            "plot_bgcolor": "rgba(0,0,0,0)",
            "margin": {"l": 52, "r": 12, "t": 34, "b": 40},
            "xaxis": {"title": {"text": "steps completed"}},
            "yaxis": {"automargin": True},
            "uirevision": name,  # zoom and hidden traces stay when new points come
        },
    }


def _trace(group: str, each: Series) -> dict[str, Any]:
    label = f"{group} {each.name}"
    if each.is_reduced:
        label += f" ({len(each.steps):,} of {each.total:,} points)"
    style = _STYLES.get(group, _OTHER)
    alone = {"mode": "lines+markers", "marker": {"size": 4}} if len(each.steps) == 1 else {}
    return {
        "type": "scatter",
        "name": label,
        "x": plain(each.steps),
        "y": plain(each.values),
        "connectgaps": False,
        **style,
        **alone,
    }


def plain(values: Floats) -> list[float | int | None]:
    """For JSON, which has neither NaN nor infinities: those become gaps. Whole numbers lose their `.0`."""
    return [
        None if not np.isfinite(value) else int(value) if value.is_integer() and abs(value) < 2**53 else value
        for value in values.tolist()
    ]
