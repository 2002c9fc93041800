"""How good an experiment has become: its best validation over time, and the validations of its trials by step."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from metrics import series
from metrics.packing import Floats, Integers
from metrics.series import Series
from metrics.traces import (
    BLUE,
    MOST_IN_LEGEND,
    MOST_TRIALS,
    Figure,
    Trace,
    curve,
    look,
    marked,
    over_steps,
    plain,
    reduced,
    value_axis,
)
from metrics.units import of_span

GROUP = "validation"
POINTS_PER_TRIAL = 300
_BEST = BLUE


@dataclass(frozen=True)
class Best:
    """The running best: each improvement with its trial and step. `end` is when anything was last validated."""

    times: Floats  # epoch seconds
    values: Floats
    steps: Floats
    trials: Integers
    end: float


def figures(trial_ids: Sequence[int], metric: str, *, is_smaller_better: bool, begin: float) -> list[Figure]:
    """Two figures, or none while nothing has been validated.

    The first is over the time since `begin` (epoch seconds), the second over steps: a curve for each of the best
    MOST_TRIALS trials, in the look that its place in `trial_ids` gives it.
    """
    found = series.of_trials(trial_ids, GROUP, metric, points=POINTS_PER_TRIAL)
    found = {pk: each for pk, each in found.items() if np.isfinite(each.values).any()}
    if not found:
        return []
    best = running_best(found, is_smaller_better=is_smaller_better)
    return [
        _over_time(best, metric, begin),
        _by_step(found, trial_ids, metric, int(best.trials[-1]), is_smaller_better),
    ]


def running_best(found: Mapping[int, Series], *, is_smaller_better: bool) -> Best:
    """Return the running best of these curves, each with a finite value; the first of equal values counts."""
    trials = np.concatenate([np.full(len(each.values), pk) for pk, each in found.items()])
    times, values, steps = (
        np.concatenate([getattr(each, name) for each in found.values()])
        for name in ("times", "values", "steps")
    )
    order = np.argsort(times, kind="stable")
    order = order[np.isfinite(values[order])]
    signed = values[order] if is_smaller_better else -values[order]
    before = np.concatenate([[np.inf], np.minimum.accumulate(signed)[:-1]])
    kept = order[signed < before]
    return Best(times[kept], values[kept], steps[kept], trials[kept], float(times.max()))


def _over_time(best: Best, metric: str, begin: float) -> Figure:
    seconds, unit = of_span(best.end - begin)
    at = (np.append(best.times, best.end) - begin) / seconds
    last = best.values[-1]
    trace = {
        "type": "scatter",
        "name": f"best {metric}",
        "x": plain(np.maximum(at, 0.0)),
        "y": plain(np.append(best.values, last)),
        "mode": "lines+markers",
        "line": {"shape": "hv", "color": _BEST, "width": 2},
        "marker": {"size": [5] * len(best.values) + [0], "color": _BEST},
        "text": [f"trial {pk} at step {step:,.0f}" for pk, step in zip(best.trials, best.steps, strict=True)]
        + [f"still trial {best.trials[-1]}"],
        "hovertemplate": "%{y:.6~g}, %{text}<extra></extra>",
    }
    name = f"best {metric} so far"
    return {
        "name": name,
        "described": f"{name}: {last:.4g} by trial {best.trials[-1]} at step {best.steps[-1]:,.0f}",
        "data": [trace],
        "layout": _layout(name, metric, f"time since submission ({unit})", legend=False),
    }


def _by_step(
    found: Mapping[int, Series], trial_ids: Sequence[int], metric: str, best: int, is_smaller_better: bool
) -> Figure:
    pick = np.nanmin if is_smaller_better else np.nanmax
    reached = {pk: float(pick(_finite(each.values))) for pk, each in found.items()}
    ranked = sorted(found, key=lambda pk: (pk != best, reached[pk] if is_smaller_better else -reached[pk]))
    drawn = set(ranked[:MOST_TRIALS])
    places = {pk: place for place, pk in enumerate(trial_ids)}
    data = [
        _trace(pk, found[pk], places[pk], is_best=False) for pk in trial_ids if pk in drawn and pk != best
    ]
    data += [_trace(best, found[best], places[best], is_best=True), _star(found[best], reached[best])]
    name = (
        f"{metric} of each trial"
        if len(found) <= MOST_TRIALS
        else f"{metric} of the best {MOST_TRIALS} trials"
    )
    return {
        "name": name,
        "described": f"{name}: {len(drawn)} of {len(found)} trials, the best is trial {best} with {reached[best]:.4g}",
        "data": data,
        "layout": _layout(name, metric, "steps completed", legend=len(drawn) <= MOST_IN_LEGEND),
    }


def _finite(values: Floats) -> Floats:
    return np.where(np.isfinite(values), values, np.nan)


def _trace(pk: int, each: Series, place: int, *, is_best: bool) -> Trace:
    return curve(
        f"trial {pk}{' (best)' if is_best else ''}{reduced(each)}",
        each,
        look(place).line(3 if is_best else 1.5),
        marker=marked(each, 5 if is_best else 4),
        opacity=1 if is_best else 0.75,
    )


def _star(each: Series, reached: float) -> dict[str, Any]:
    at = int(np.flatnonzero(each.values == reached)[0])
    return {
        "type": "scatter",
        "name": "best",
        "showlegend": False,
        "hoverinfo": "skip",
        "x": plain(each.steps[at : at + 1]),
        "y": plain(each.values[at : at + 1]),
        "mode": "markers",
        "marker": {"symbol": "star", "size": 14, "color": _BEST, "line": {"width": 1, "color": "#ffffff"}},
    }


def _layout(name: str, metric: str, axis: str, *, legend: bool) -> dict[str, Any]:
    return over_steps(name, legend=legend) | {
        "hovermode": "closest",
        "xaxis": {"title": {"text": axis}, "rangemode": "tozero"},
        "yaxis": value_axis(metric),
    }
