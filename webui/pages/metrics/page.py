"""The Metrics page of a trial: a table of its metrics, curves for the charts in view, and all points as a file."""

from __future__ import annotations

import re
from dataclasses import replace
from datetime import datetime

import numpy as np
from django.http import HttpRequest, JsonResponse, QueryDict
from django.http.response import HttpResponseBase
from django.utils import timezone

from accounts.refusals import Refusal
from accounts.rights import Right
from experiments.models import Checkpoint, Trial
from metrics import csv_files, curves, metric_table, series
from metrics.charts import ordered
from metrics.curves import MOST_SMOOTHING, Axis, Clock, CurveView, Wanted
from metrics.metric_table import Chosen
from metrics.units import of_span
from shown import trials as shown_trials
from webui.downloads.tables import csv_file
from webui.pages.frame import UNKEPT, posted, refusing, told_in_json, user_of
from webui.pages.metrics import pins as metric_pins
from webui.pages.trials import trial
from webui.query import LARGEST_ID, as_whole, number, window

#: the axis, and what it says below the charts; {} is the unit of time that the page chose
AXES = {
    Axis.STEP: ("steps", "steps completed"),
    Axis.RELATIVE: ("relative time", "time since the first start ({})"),
    Axis.WALL: ("wall time", "wall time (UTC)"),
    Axis.EPOCH: ("epochs", "epoch"),
}
#: Curves that one request may ask for.
CURVES_MAX = 200
SEARCH_CHARACTERS = 200


def chosen(query: QueryDict) -> Chosen:
    """`q`, `prefix`, `m` and `pin` (each may repeat), `expand`, `page`. What makes no sense is left out."""
    return Chosen(
        search=query.get("q", "").strip()[:SEARCH_CHARACTERS],
        prefix=query.get("prefix", ""),
        ticked=query.getlist("m")[:CURVES_MAX],
        pins=query.getlist("pin")[:CURVES_MAX],
        expanded=query.get("expand", ""),
        page=query.get("page", ""),
    )


def _view(query: QueryDict, begin: float) -> CurveView:
    """`x`, `smooth`, `from` and `to` in the unit of x (relative: seconds since `begin`; wall: epoch seconds).

    Raises Refusal.
    """
    name = query.get("x") or Axis.STEP
    if name not in list(Axis):
        raise Refusal(f"x is {name[:40]!r}; allowed: {', '.join(Axis)}.")
    return CurveView(
        Axis(name),
        *window(query, "from", "to"),
        number(query, "smooth", 0, MOST_SMOOTHING) or 0.0,
        begin=begin,
    )


def _wanted(query: QueryDict) -> list[Wanted]:
    """`group`, `name` and optionally `after`, each once per curve. Raises Refusal."""
    groups, names, after = query.getlist("group"), query.getlist("name"), query.getlist("after")
    if not groups or len(groups) != len(names) or len(after) not in {0, len(names)}:
        raise Refusal(
            "`group` and `name` are required, and `group`, `name` and `after` must be given equally often."
        )
    if len(groups) > CURVES_MAX:
        raise Refusal(f"{len(groups)} curves are requested; at most {CURVES_MAX} are allowed at once.")
    steps = [_step(text) for text in after] or [None] * len(groups)
    return [Wanted(*each) for each in zip(groups, names, steps, strict=True)]


def _step(text: str) -> int | None:
    if not text:
        return None
    if (step := as_whole(text)) is None:
        raise Refusal(f"after is {text[:40]!r}; it must be a step: a whole number from 0 to {LARGEST_ID}.")
    return step


@refusing
def detail(request: HttpRequest, trial_id: int) -> HttpResponseBase:
    """The page; with `?part` its head, with `?part=table` the table and the list of charts beside it."""
    part = request.GET.get("part")
    return trial.show_tab(request, trial.find(trial_id), "metrics", _page, own="table", part=part)


@posted(Right.OWN)
@told_in_json
def pin(request: HttpRequest, trial_id: int) -> HttpResponseBase:
    """Pin the chart `name`, or with `pinned=false` take the pin off, for this user in the whole project.

    The answer is the table as the address shows it.
    """
    found = trial.find(trial_id)
    is_pinned = request.POST.get("pinned", "true") == "true"
    metric_pins.put(
        user_of(request), found.experiment.project_id, request.POST.get("name", ""), is_pinned=is_pinned
    )
    return trial.show_tab(request, found, "metrics", _page, own="table", part="table")


def _page(request: HttpRequest, found: Trial) -> dict[str, object]:
    begin = begin_of(found)
    view, asked = _view(request.GET, begin), chosen(request.GET)
    pins = metric_pins.of(user_of(request), found.experiment.project_id)
    asked = replace(asked, pins=[*asked.pins, *pins])
    table = metric_table.table(found.summary_metrics, asked, found.experiment.searcher_metric)
    has_epochs = any(curves.EPOCH in metrics for metrics in found.summary_metrics.values())
    size, unit = unit_of(found)
    return {
        "trial": found,
        "table": table,
        "chosen_metrics": asked,
        "charts": [
            {"name": chart.name, "pinned": chart.is_pinned,
             "series": [[row.group, row.name] for row in chart.rows if row.is_number]}
            for chart in table.drawn
        ],
        "view": view,
        "axes": [
            {"name": str(axis), "word": word, "title": title.format(unit)}
            for axis, (word, title) in AXES.items()
            if axis != Axis.EPOCH or has_epochs
        ],
        "unit_seconds": size,
        "searcher_metric": found.experiment.searcher_metric,
        "smaller_is_better": found.experiment.smaller_is_better,
    }  # fmt: skip


def begin_of(found: Trial) -> float:
    """When its first attempt began, or it was made; relative time counts from there. Epoch seconds."""
    first = found.task.allocations.order_by("number").values_list("assigned_at", flat=True).first()
    at: datetime = first or found.started_at
    return at.timestamp()


def unit_of(found: Trial) -> tuple[int, str]:
    """(seconds, name) of the unit of time that suits how long it has run."""
    return of_span((found.ended_at or timezone.now()).timestamp() - begin_of(found))


@refusing
def data(request: HttpRequest, trial_id: int) -> HttpResponseBase:
    """The curves that `group` and `name` list, in the view of `x`, `from`, `to` and `smooth`, as JSON.

    {"run": number of the attempt, "whole": false where only what lies behind `after` is in it, "curves": [{group, name,
    x, y, smooth: {x, y} or null, total, last}], "best": {x, step, uuid} of the best checkpoint or null}. The asker
    says by `run` which attempt it knows: another one may have replaced steps, and so brings all points again.
    """
    found = trial.find(trial_id)
    wanted, view = _wanted(request.GET), _view(request.GET, begin_of(found))
    clock = None
    if view.axis == Axis.EPOCH:
        clock = curves.clock(found.pk, ordered(series.groups(found.pk)))
        if clock is None:
            raise Refusal(f"The trial has not reported a metric {curves.EPOCH!r}, so there is no epoch axis.")
    is_tail = not view.needs_all and request.GET.get("run") == str(found.run_id)
    answer = [each.record() for each in curves.read_each(found.pk, wanted, view, clock, is_tail=is_tail)]
    checkpoint = shown_trials.best_checkpoint(found)
    best = None if checkpoint is None else _marked(checkpoint, view, clock)
    data = {"run": found.run_id, "whole": not is_tail, "curves": answer, "best": best}
    return JsonResponse(data, headers=UNKEPT, json_dumps_params={"separators": (",", ":")})


def _marked(checkpoint: Checkpoint, view: CurveView, clock: Clock | None) -> dict[str, object]:
    """Where the best checkpoint stands on the axis."""
    steps, at = checkpoint.steps_completed, checkpoint.reported_at.timestamp()
    x: float = steps
    if view.axis == Axis.WALL:
        x = at
    elif view.axis == Axis.RELATIVE:
        x = at - view.begin
    elif clock is not None:
        x = float(clock.at(np.array([steps], dtype=np.float64))[0])
    return {"x": x, "step": steps, "uuid": str(checkpoint.pk)}


@refusing
def export(request: HttpRequest, trial_id: int) -> HttpResponseBase:
    """All points of the metrics that `group` and `name` list as CSV: group, metric, step, time, value."""
    found = trial.find(trial_id)
    wanted = _wanted(request.GET)
    safe = re.sub(r"[^A-Za-z0-9._-]+", "_", wanted[0].name)[:60]
    return csv_file(f"trial-{found.pk}-{safe}", csv_files.of_metrics(found.pk, wanted))
