"""Plotly figures as plain dicts. Paper and ink come from the page's theme; only the curves are drawn here."""

from __future__ import annotations

import math
import re
from collections import defaultdict
from typing import Any

import plotly.graph_objects as go

from metrics import series as metric_series
from metrics.series import Series

#: `train_loss` and `val_loss` share a chart (features.md 4.6)
_PREFIX = re.compile(r"^(t|train|training|v|val|validation)_")
#: curves differ by line and mark, not by colour alone; both read on light and dark paper
_STYLES = {
    "training": {"line": {"color": "#7d858c", "width": 1.5}, "mode": "lines"},
    "validation": {"line": {"color": "#2f6fd0", "width": 2}, "mode": "lines+markers", "marker": {"size": 6}},
}
_OTHER = {
    "line": {"color": "#c98a06", "width": 1.5, "dash": "dot"},
    "mode": "lines+markers",
    "marker": {"size": 4},
}


def trial_figures(trial_id: int, highlight: str | None = None) -> list[dict[str, Any]]:
    """One figure per metric of the trial, training and validation together: [{"name", "data", "layout"}].

    The searcher's metric (`highlight`) comes first.
    """
    charts: dict[str, list[Series]] = defaultdict(list)
    for series in metric_series.of_trial(trial_id):
        charts[_PREFIX.sub("", series.name)].append(series)
    first = _PREFIX.sub("", highlight or "")
    return [_figure(name, charts[name]) for name in sorted(charts, key=lambda name: (name != first, name))]


def _figure(name: str, curves: list[Series]) -> dict[str, Any]:
    figure = go.Figure()
    for series in curves:
        label = f"{series.group} {series.name}"
        if series.reduced:
            label += f" ({len(series.steps):,} of {series.total:,} points)"
        figure.add_trace(
            go.Scatter(
                x=series.steps,
                y=[value if math.isfinite(value) else None for value in series.values],
                name=label,
                connectgaps=False,
                **_STYLES.get(series.group, _OTHER),
            )
        )
    figure.update_layout(
        title={"text": name, "font": {"size": 13}},
        margin={"l": 52, "r": 12, "t": 34, "b": 40},
        height=320,
        hovermode="x unified",
        showlegend=True,
        legend={"orientation": "h", "y": -0.2},
        uirevision=name,
        xaxis={"title": {"text": "steps completed"}},
    )
    drawn = figure.to_plotly_json()
    return {
        "name": name,
        "data": drawn["data"],
        "layout": {k: v for k, v in drawn["layout"].items() if k != "template"},
    }
