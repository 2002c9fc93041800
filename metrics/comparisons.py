"""Plotly figures that lay the curves of several trials over each other: one figure per metric of a group."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote, unquote

from metrics import series
from metrics.charts import Figure, plain
from metrics.series import Series

#: colour and dash of the first trial, the second…; both together tell 20 apart, on light and dark paper
COLOURS = (
    "#2f6fd0", "#c98a06", "#0f8f6b", "#b5467b", "#8a5fb8", "#3f93a8", "#b4552d", "#6b8e23", "#7d858c", "#d0553f",
)  # fmt: skip
DASHES = (("solid", ""), ("dash", "5 3"))
MOST_TRIALS = len(COLOURS) * len(DASHES)
#: of all curves of one figure together
POINTS_PER_FIGURE = 6000
#: with more trials the table beside the charts is their legend
MOST_IN_LEGEND = 6
#: groups whose curves stand first; the user's own follow by name
FIRST_GROUPS = ("validation", "training")


@dataclass(frozen=True)
class Look:
    """How one trial is drawn: its colour, Plotly's word for its line, and SVG's."""

    colour: str
    dash: str
    dasharray: str


@dataclass(frozen=True, order=True)
class Metric:
    """One metric of a group. As text `group/name`, with the group's own slashes escaped: addresses hold it so."""

    group: str
    name: str

    def __str__(self) -> str:
        return f"{quote(self.group, safe='')}/{self.name}"

    @classmethod
    def parse(cls, text: str) -> Metric | None:
        """The metric that `str` wrote so, or None for what is none."""
        group, _, name = text.partition("/")
        return cls(unquote(group), name) if group and name and "\x00" not in unquote(text) else None


def look(place: int) -> Look:
    """Return the look of the trial at this place in the address, from 0; looks repeat beyond MOST_TRIALS."""
    dash, dasharray = DASHES[place // len(COLOURS) % len(DASHES)]
    return Look(COLOURS[place % len(COLOURS)], dash, dasharray)


def metrics_of(trial_ids: Sequence[int], first: Sequence[Metric] = ()) -> list[Metric]:
    """What any of the trials has reported: `first`, validation, training, then the user's own groups, by name."""
    found = [Metric(group, name) for group, names in series.names(*trial_ids).items() for name in names]
    return sorted(found, key=lambda metric: (metric not in first, *_place(metric.group), metric))


def _place(group: str) -> tuple[bool, int]:
    known = group in FIRST_GROUPS
    return not known, FIRST_GROUPS.index(group) if known else 0


def figures(trials: Mapping[int, str], metrics: Sequence[Metric]) -> list[Figure]:
    """A figure for each metric that holds numbers; `trials`: id -> label, in the order of their looks.

    Each curve is reduced to the envelope of its extremes and says so, and each trial is read once per group.
    """
    points = max(100, POINTS_PER_FIGURE // max(1, len(trials)))
    curves: dict[Metric, list[tuple[int, str, Series]]] = {metric: [] for metric in metrics}
    for place, (trial_id, label) in enumerate(trials.items()):
        for group in dict.fromkeys(metric.group for metric in metrics):
            names = [metric.name for metric in metrics if metric.group == group]
            for each in series.read(trial_id, group, names, points=points):
                curves[Metric(group, each.name)].append((place, label, each))
    return [_figure(metric, found) for metric, found in curves.items() if found]


def _figure(metric: Metric, curves: Sequence[tuple[int, str, Series]]) -> Figure:
    title = f"{metric.group} {metric.name}"
    return {
        "name": title,
        "data": [_trace(*curve) for curve in curves],
        "layout": {
            "title": {"text": title, "font": {"size": 13}},
            "showlegend": len(curves) <= MOST_IN_LEGEND,
            "legend": {"orientation": "h", "y": 1, "yanchor": "bottom", "font": {"size": 11}},
            "hovermode": "x unified",
            "xaxis": {"title": {"text": "steps completed"}},
            "yaxis": {"automargin": True},
            "uirevision": title,  # zoom and hidden curves stay when new points come
        },
    }


def _trace(place: int, label: str, each: Series) -> dict[str, Any]:
    style = look(place)
    reduced = f" ({len(each.steps):,} of {each.total:,} points)" if each.is_reduced else ""
    few = len(each.steps) <= 50
    return {
        "type": "scatter",
        "name": label + reduced,
        "x": plain(each.steps),
        "y": plain(each.values),
        "connectgaps": False,
        "mode": "lines+markers" if few else "lines",
        "line": {"color": style.colour, "width": 1.5, "dash": style.dash},
        **({"marker": {"size": 4}} if few else {}),
    }
