"""The figures of one trial: a chart for each metric, a line for each of its groups."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

from metrics import series
from metrics.series import Series
from metrics.traces import AMBER, BLUE, GRAY, Figure, curve, over_steps, reduced

#: Groups first in the list of a trial's figures; the user's own follow by name.
FIRST_GROUPS = ["training", "validation"]

_PREFIX = re.compile(r"^(t|train|training|v|val|validation)[_/.](?=.)")
#: group -> its line, and the size of its marks
_STYLES: dict[str, tuple[dict[str, Any], int | None]] = {
    "training": ({"color": GRAY, "width": 1.5}, None),
    "validation": ({"color": BLUE, "width": 2}, 6),
}
_OTHER = ({"color": AMBER, "width": 1.5, "dash": "dot"}, 4)


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

    `train_loss` and `val_loss` share the chart `loss` (features.md 4.6). Only the first `most` are read. The name of a
    curve says if it is reduced (to the envelope of its extremes).
    """
    known, first = series.names(trial_id), stem(highlight or "")
    stems = {stem(name) for names in known.values() for name in names}
    chosen = sorted(stems, key=lambda name: (name != first, name))[:most]
    traces: dict[str, list[tuple[str, Series]]] = {}
    for group in ordered(known):
        names = [name for name in known[group] if stem(name) in chosen]
        for each in series.read(trial_id, group, names, points=points):
            traces.setdefault(stem(each.name), []).append((group, each))
    return [metric_figure(name, traces[name]) for name in chosen if name in traces]


def ordered(groups: Iterable[str]) -> list[str]:
    """Training and validation first."""
    return sorted(groups, key=lambda group: (group not in FIRST_GROUPS, group))


def metric_figure(name: str, groups: list[tuple[str, Series]]) -> Figure:
    """One metric over steps, a line per group."""
    data = [_trace(group, each) for group, each in groups]
    return {"name": name, "data": data, "layout": over_steps(name, legend=True)}


def _trace(group: str, each: Series) -> dict[str, Any]:
    line, marker = _STYLES.get(group, _OTHER)
    return curve(
        f"{group} {each.name}{reduced(each)}", each, line, marker=4 if len(each.steps) == 1 else marker
    )
