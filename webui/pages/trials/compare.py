"""Several trials of any experiments side by side: what sets them apart, and their curves over each other.

The address holds all of it: `/compare?trials=3,7,12&metric=validation/loss`. What is ticked on other pages comes as
`trial=3&trial=7`, or as `experiment=4`, which stands for the experiment's best trial.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from urllib.parse import urlencode

from django.http import HttpRequest, HttpResponse, HttpResponseRedirect, JsonResponse, QueryDict
from django.utils import timezone

from experiments import phases
from experiments.models import Experiment, Trial
from metrics import comparisons
from metrics.comparisons import Metric
from metrics.traces import MOST_TRIALS, Look, look
from shown.hparams import Table, table_of
from webui.pages.frame import page, show
from webui.query import as_ids, as_whole

#: drawn unless the address names others
FIRST_METRICS = 6
MOST_METRICS = 24


@dataclass(frozen=True)
class Row:
    """One compared trial. `without`: the address of the others; `best`: the searcher's metric, where there is one."""

    trial: Trial
    look: Look
    phase: str
    metric: str
    best: float | None
    is_best: bool
    seconds: float
    values: list[tuple[str, str]]
    without: str


@dataclass(frozen=True)
class View:
    """What the address asks for, and what of it cannot be shown, in sentences."""

    trials: list[Trial]
    asked: list[Metric]
    refusals: list[str]

    @property
    def ids(self) -> list[int]:
        return [trial.pk for trial in self.trials]

    def address(self, ids: Sequence[int], path: str = "/compare") -> str:
        names = [("metric", str(metric)) for metric in self.asked]
        return f"{path}?{urlencode([('trials', ','.join(map(str, ids))), *names], safe=',/')}"


@page
def compare(request: HttpRequest) -> HttpResponse:
    """The table, and places for the charts."""
    if "trial" in request.GET or "experiment" in request.GET:
        return HttpResponseRedirect(_joined(request.GET))
    view = read(request.GET)
    known = comparisons.metrics_of(view.ids, _searched(view.trials))
    shown = view.asked or known[:FIRST_METRICS]
    hparams = table_of([trial.hparams for trial in view.trials])
    context = {
        "view": view,
        "rows": _rows(view, hparams),
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
    metrics = view.asked or comparisons.metrics_of(view.ids, _searched(view.trials))[:FIRST_METRICS]
    labels = {trial.pk: f"trial {trial.pk}" for trial in view.trials}
    return JsonResponse({"figures": comparisons.figures(labels, metrics)})


def read(query: QueryDict) -> View:
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
    return View(trials[:MOST_TRIALS], [each for each in metrics if each][:MOST_METRICS], refusals)


def _joined(query: QueryDict) -> str:
    """The address of what was ticked; trials that the form names already stand first."""
    named = as_ids([*query.get("trials", "").split(","), *query.getlist("trial")])
    best = filter(None, map(_best_of, as_ids(query.getlist("experiment"))))
    all_of_them = ",".join(map(str, dict.fromkeys([*named, *best])))
    metrics = [("metric", text) for text in query.getlist("metric")]
    return f"/compare?{urlencode([('trials', all_of_them), *metrics], safe=',/')}"


def _best_of(experiment_id: int) -> int | None:
    """Its best trial; while none has a validation, its newest."""
    best = Experiment.objects.filter(pk=experiment_id).values_list("best_trial_id", flat=True).first()
    newest = Trial.objects.filter(experiment_id=experiment_id).order_by("-pk").values_list("pk", flat=True)
    return best or newest.first()


def _searched(trials: Sequence[Trial]) -> list[Metric]:
    """The metrics that the searchers of these trials look at."""
    return list({Metric("validation", _searcher(trial)[0]) for trial in trials})


def _searcher(trial: Trial) -> tuple[str, bool]:
    searcher = trial.experiment.config.get("searcher") or {}
    return str(searcher.get("metric") or ""), bool(searcher.get("smaller_is_better", True))


def _rows(view: View, hparams: Table) -> list[Row]:
    words, now = phases.of_trials(view.trials), timezone.now()
    values = [(trial.best_validation or {}).get("searcher_metric") for trial in view.trials]
    best = _best_places(view.trials, values)
    return [
        Row(
            trial=trial,
            look=look(place),
            phase=words[trial.pk],
            metric=_searcher(trial)[0],
            best=values[place],
            is_best=place in best,
            seconds=_seconds(trial, now),
            values=hparams.differing_of(place),
            without=view.address([pk for pk in view.ids if pk != trial.pk]),
        )
        for place, trial in enumerate(view.trials)
    ]


def _best_places(trials: Sequence[Trial], values: Sequence[float | None]) -> set[int]:
    """Which is the best of those that are judged by the same metric in the same direction, if there are several."""
    judged: dict[tuple[str, bool], list[tuple[float, int]]] = {}
    for place, (trial, value) in enumerate(zip(trials, values, strict=True)):
        if value is not None:
            name, smaller = _searcher(trial)
            judged.setdefault((name, smaller), []).append((value if smaller else -value, place))
    return {min(rows)[1] for rows in judged.values() if len(rows) > 1}


def _seconds(trial: Trial, now: datetime) -> float:
    return ((trial.ended_at or now) - trial.started_at).total_seconds()
