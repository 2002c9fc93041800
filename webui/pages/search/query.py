"""What the charts of a search ask for in their address. What makes no sense there is left out, as if it were absent."""

from __future__ import annotations

from dataclasses import dataclass

from django.http import QueryDict

from experiments.models import Experiment
from metrics.comparisons import Metric
from metrics.hparam_axes import Bounds
from metrics.learning_curves import TOPS
from metrics.parallel_chart import METRIC
from webui.query import as_number, as_whole, choice

#: hyperparameters drawn at once (features.md 4.5), and those drawn unless the address names some
MOST_AXES, FIRST_AXES = 10, 6
#: so many of them have 6 or 45 pairs
FIRST_OF_A_MAP = 4
MARGINS = (1, 5, 10, 20, 50)
USUAL_MARGIN = 10
TAKES = ("best", "latest", "step")
BETTER = ("larger", "smaller")


@dataclass(frozen=True)
class View:
    """`take`: a trial's best or latest value, or the one at `step`, give or take `margin`."""

    metric: Metric
    is_smaller_better: bool
    take: str
    step: int | None
    margin: int
    is_log: bool
    top: int
    axes: list[str]
    bounds: dict[str, Bounds]


def read(query: QueryDict, experiment: Experiment) -> View:
    """`metric`, `better`, `take`, `step`, `margin`, `scale`, `top`, `hp` (repeats) and the bounds."""
    searched, is_smaller = searcher_metric(experiment)
    step = as_whole(query.get("step", ""))
    take = choice(query, "take", TAKES, "best")
    return View(
        metric=Metric.parse(query.get("metric", "")) or searched,
        is_smaller_better=choice(query, "better", BETTER, BETTER[is_smaller]) == "smaller",
        take="best" if take == "step" and step is None else take,
        step=step,
        margin=choice(query, "margin", MARGINS, USUAL_MARGIN),
        is_log=query.get("scale") == "log",
        top=choice(query, "top", TOPS, TOPS[1]),
        axes=query.getlist("hp")[:MOST_AXES],
        bounds=bounds(query),
    )


def searcher_metric(experiment: Experiment) -> tuple[Metric, bool]:
    """What the searcher looks at, and whether smaller is better."""
    searcher = experiment.config.get("searcher") or {}
    name = str(searcher.get("metric") or "")
    return Metric("validation", name), bool(searcher.get("smaller_is_better", True))


def bounds(query: QueryDict) -> dict[str, Bounds]:
    """`min.<name>`, `max.<name>`, `is.<name>` (repeats) of hyperparameters; `min` and `max` of the metric (METRIC)."""
    names = {METRIC} if {"min", "max"} & query.keys() else set()
    names |= {key.partition(".")[2] for key in query if key.partition(".")[0] in {"min", "max", "is"}}
    found = {}
    for name in sorted(names):
        low, high = (as_number(query.get(f"{end}.{name}" if name else end, "")) for end in ("min", "max"))
        among = frozenset(query.getlist(f"is.{name}")) - {""} if name else frozenset()
        if low is not None or high is not None or among:
            found[name] = Bounds(low, high, among)
    return found
