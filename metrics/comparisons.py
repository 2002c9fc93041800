"""Plotly figures that lay the curves of several trials over each other: one figure per metric of a group."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from urllib.parse import quote, unquote

from metrics import series
from metrics.series import Series
from metrics.traces import LEGEND, MOST_IN_LEGEND, Figure, Trace, curve, look, marked, reduced, title

#: of all curves of one figure together
POINTS_PER_FIGURE = 6000
#: groups whose curves stand first; the user's own follow by name
FIRST_GROUPS = ("validation", "training")


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
    name = f"{metric.group} {metric.name}"
    return {
        "name": name,
        "data": [_trace(*curve) for curve in curves],
        "layout": {
            "title": title(name),
            "showlegend": len(curves) <= MOST_IN_LEGEND,
            "legend": LEGEND,
            "hovermode": "x unified",
            "xaxis": {"title": {"text": "steps completed"}},
            "yaxis": {"automargin": True},
            "uirevision": name,  # zoom and hidden curves stay when new points come
        },
    }


def _trace(place: int, label: str, each: Series) -> Trace:
    style = look(place)
    line = {"color": style.color, "width": 1.5, "dash": style.dash}
    return curve(label + reduced(each), each, line, marker=marked(each, 4))
