"""Plotly figures that lay the curves of several trials over each other: one figure per metric of a group."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from urllib.parse import quote, unquote

from metrics import series
from metrics.series import Series
from metrics.traces import MOST_IN_LEGEND, Figure, curve, look, marked, over_steps, reduced

#: of all curves of one figure together
POINTS_PER_FIGURE = 6000


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

    def place(metric: Metric) -> tuple[bool, bool, bool, Metric]:
        return metric not in first, metric.group != "validation", metric.group != "training", metric

    return sorted(found, key=place)


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
    layout = over_steps(name, legend=len(curves) <= MOST_IN_LEGEND)
    data = [
        curve(label + reduced(each), each, look(place).line(1.5), marker=marked(each, 4))
        for place, label, each in curves
    ]
    return {"name": name, "data": data, "layout": layout}
