"""Several trials of any experiments side by side: what sets them apart, and their curves over each other.

The address holds all of it: `/compare?trials=3,7,12&metric=validation/loss`. What is ticked on other pages comes as
`trial=3&trial=7`, or as `experiment=4`, which stands for the experiment's best trial.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from urllib.parse import urlencode

from django.http import HttpRequest, HttpResponse, HttpResponseRedirect, JsonResponse, QueryDict

from experiments.models import Trial
from metrics import comparisons
from metrics.comparisons import Metric
from metrics.traces import MOST_TRIALS
from shown import comparison
from shown.hparams import table_of
from webui.pages.frame import page, show
from webui.query import as_ids, as_whole

#: drawn unless the address names others
FIRST_METRICS = 6
MOST_METRICS = 24


@dataclass(frozen=True)
class CompareView:
    """What the address asks for, and what of it cannot be shown, in sentences."""

    trials: list[Trial]
    asked: list[Metric]
    refusals: list[str]

    @property
    def ids(self) -> list[int]:
        return [trial.pk for trial in self.trials]

    def address(self, ids: Sequence[int], path: str = "/compare") -> str:
        return _address(ids, map(str, self.asked), path)


@page
def compare(request: HttpRequest) -> HttpResponse:
    """The table, and places for the charts."""
    if "trial" in request.GET or "experiment" in request.GET:
        return HttpResponseRedirect(_joined(request.GET))
    view = read(request.GET)
    known = comparisons.metrics_of(view.ids, comparison.searched(view.trials))
    shown = view.asked or known[:FIRST_METRICS]
    hparams = table_of([trial.hparams for trial in view.trials])
    context = {
        "view": view,
        "rows": [
            (row, view.address([pk for pk in view.ids if pk != row.trial.pk]))
            for row in comparison.rows(view.trials, hparams)
        ],
        "hparams": hparams,
        "experiments": len({trial.experiment_id for trial in view.trials}),
        "metrics": [(metric, metric in shown) for metric in known],
        "shown": len(shown),
        "most": MOST_TRIALS,
        "topics": " ".join(f"experiment:{pk}" for pk in sorted({t.experiment_id for t in view.trials})),
        "here": view.address(view.ids),
        "figures": view.address(view.ids, "/compare/chart"),
    }
    return show(request, "compare", context, room="Experiments", fragment="compare")


@page
def chart(request: HttpRequest) -> JsonResponse:
    """The figures of the metrics that the address names, or of the first, as Plotly JSON."""
    view = read(request.GET)
    metrics = view.asked or comparisons.metrics_of(view.ids, comparison.searched(view.trials))[:FIRST_METRICS]
    labels = {trial.pk: f"trial {trial.pk}" for trial in view.trials}
    return JsonResponse({"figures": comparisons.figures(labels, metrics)})


def read(query: QueryDict) -> CompareView:
    """The trials in the order of the address, each once, and the metrics; at most MOST_TRIALS and MOST_METRICS."""
    words = [word.strip() for word in query.get("trials", "").split(",") if word.strip()]
    numbers = as_ids(words)
    refusals = [f"{word!r} is not the ID of a trial." for word in words if as_whole(word) is None][:3]
    found = Trial.objects.select_related("experiment").in_bulk(numbers[: 5 * MOST_TRIALS])
    trials = [found[number] for number in numbers if number in found]
    refusals += [
        f"There is no trial {number}." for number in numbers[: 5 * MOST_TRIALS] if number not in found
    ][:3]
    if len(trials) > MOST_TRIALS:
        refusals.append(
            f"{len(trials)} trials were requested, and at most {MOST_TRIALS} are compared: these are the first ones."
        )
    metrics = [Metric.parse(text) for text in dict.fromkeys(query.getlist("metric"))]
    if len(metrics) > MOST_METRICS:
        refusals.append(f"{len(metrics)} metrics were requested, and at most {MOST_METRICS} are shown.")
    return CompareView(trials[:MOST_TRIALS], [each for each in metrics if each][:MOST_METRICS], refusals)


def _joined(query: QueryDict) -> str:
    """The address of what was ticked; trials that the form names already stand first."""
    named = as_ids([*query.get("trials", "").split(","), *query.getlist("trial")])
    best = filter(None, map(comparison.best_of, as_ids(query.getlist("experiment"))))
    return _address(dict.fromkeys([*named, *best]), query.getlist("metric"), "/compare")


def _address(ids: Iterable[int], metrics: Iterable[str], path: str) -> str:
    asked = {"trials": ",".join(map(str, ids)), "metric": list(metrics)}
    return f"{path}?{urlencode(asked, doseq=True, safe=',/')}"
