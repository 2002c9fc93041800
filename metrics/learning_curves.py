"""Learning curves of the best trials of a search, over each other."""

from __future__ import annotations

import numpy as np

from metrics import series
from metrics.comparisons import Metric
from metrics.series import Series
from metrics.sweep import COLORS, Sweep, table_of
from metrics.traces import LEGEND, MOST_IN_LEGEND, MOST_TRIALS, Figure, Trace, curve, look, marked, value_axis

#: choices of how many (features.md 4.5)
TOPS = (1, 10, 20, 50, 100)
#: of all curves together
POINTS = 5000


def figure(best: Sweep, metric: Metric, names: list[str], *, is_log: bool) -> Figure | None:
    """A curve for each of these trials, the best drawn last; None where none has reported the metric.

    Up to MOST_TRIALS differ by color and dash; of more, the color says the rank.
    """
    points = max(50, POINTS // max(1, len(best)))
    found = series.of_trials(best.trials.tolist(), metric.group, metric.name, points=points)
    found = {pk: each for pk, each in found.items() if np.isfinite(each.values).any()}
    if not found:
        return None
    ranked = [int(pk) for pk in best.trials if int(pk) in found]
    title = (
        f"{metric.name} of the best {len(ranked)} trials"
        if len(ranked) > 1
        else f"{metric.name} of the best trial"
    )
    whole = sum(each.total for each in found.values())
    drawn = sum(len(each.steps) for each in found.values())
    return {
        "name": title,
        "note": f"{drawn:,} of {whole:,} points" if drawn < whole else f"{whole:,} points",
        "described": f"{title}, by step; the best is trial {best.trials[0]} with {best.values[0]:.6g}",
        "tall": 440,
        "data": [
            _trace(pk, found[pk], place, len(ranked)) for place, pk in reversed(list(enumerate(ranked)))
        ],
        "layout": {
            "showlegend": 1 < len(ranked) <= MOST_IN_LEGEND,
            "legend": {**LEGEND, "traceorder": "reversed"},
            "hovermode": "closest",
            "xaxis": {"title": {"text": "steps completed"}, "rangemode": "tozero"},
            "yaxis": value_axis(metric.name, is_log=is_log),
            "uirevision": f"{title} {is_log}",
        },
        "table": table_of(best, names, title),
    }  # fmt: skip


def _trace(pk: int, each: Series, place: int, count: int) -> Trace:
    style = look(place)
    is_many = count > MOST_TRIALS
    return curve(
        f"trial {pk}{' (best)' if place == 0 else ''}",
        each,
        {
            "color": COLORS[place * len(COLORS) // count] if is_many else style.color,
            "width": 3 if place == 0 else 1.5,
            "dash": "solid" if is_many else style.dash,
        },
        marker=None if is_many else marked(each, 4),
        meta=pk,
        hovertemplate=f"trial {pk} at step %{{x}}: %{{y:.6~g}}<extra></extra>",
        opacity=1 if place == 0 else 0.55 if is_many else 0.8,
    )
