"""What the charts of a search ask for in their address. What makes no sense there is left out, as if it were absent."""

from __future__ import annotations

from django.http import QueryDict

from experiments.models import Experiment
from metrics.comparisons import Metric
from metrics.hparam_axes import Bounds
from metrics.learning_curves import TOPS
from metrics.parallel_chart import METRIC
from shown.search.charts import MOST_AXES
from shown.search.tried import SearchView
from webui.query import as_number, as_whole, choice

MARGINS = (1, 5, 10, 20, 50)
USUAL_MARGIN = 10
TAKES = ("best", "latest", "step")
BETTER = ("larger", "smaller")


def read(query: QueryDict, experiment: Experiment) -> SearchView:
    """`metric`, `better`, `take`, `step`, `margin`, `scale`, `top`, `hp` (repeats) and the bounds."""
    step = as_whole(query.get("step", ""))
    take = choice(query, "take", TAKES, "best")
    return SearchView(
        metric=Metric.parse(query.get("metric", "")) or Metric("validation", experiment.searcher_metric),
        is_smaller_better=choice(query, "better", BETTER, BETTER[experiment.smaller_is_better]) == "smaller",
        take="best" if take == "step" and step is None else take,
        step=step,
        margin=choice(query, "margin", MARGINS, USUAL_MARGIN),
        is_log=query.get("scale") == "log",
        top=choice(query, "top", TOPS, TOPS[1]),
        axes=query.getlist("hp")[:MOST_AXES],
        bounds=bounds(query),
    )


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
