"""The Metrics page of a trial: a table of its metrics, curves for the charts in view, and all points as a file."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import AsyncIterator, Generator, Iterable, Sequence
from dataclasses import replace
from datetime import UTC, datetime

import numpy as np
from django.http import HttpRequest, JsonResponse, StreamingHttpResponse
from django.http.response import HttpResponseBase
from django.utils import timezone
from django.views.decorators.http import require_POST

from accounts.refusals import Refusal
from experiments.models import Checkpoint, Trial
from metrics import curves, series
from metrics.charts import FIRST_GROUPS
from metrics.curves import Axis, Clock, Curve, View
from metrics.traces import plain
from metrics.units import of_span
from shown import trials as shown_trials
from webui.downloads.logs import stepped
from webui.pages.frame import page, refusing, show, user_of
from webui.pages.metrics import pins as metric_pins
from webui.pages.metrics import query
from webui.pages.metrics import table as metric_table
from webui.pages.metrics.query import Wanted
from webui.pages.trials import trial

LINES_PER_BLOCK = 5000
_ALL = 10**12
#: the axis, and what it says below the charts; {} is the unit of time that the page chose
AXES = {
    Axis.STEP: ("steps", "steps completed"),
    Axis.RELATIVE: ("relative time", "time since the first start ({})"),
    Axis.WALL: ("wall time", "wall time (UTC)"),
    Axis.EPOCH: ("epochs", "epoch"),
}


@page
@refusing
def detail(request: HttpRequest, trial_id: int) -> HttpResponseBase:
    """The page; with `?part` its head, with `?part=table` the table and the list of charts beside it."""
    found = trial.find(trial_id)
    return _shown(request, found, request.GET.get("part"))


@page
@require_POST
@refusing
def pin(request: HttpRequest, trial_id: int) -> HttpResponseBase:
    """Pin the chart `name`, or with `pinned=false` take the pin off, for this user in the whole project.

    The answer is the table as the address shows it.
    """
    found = trial.find(trial_id)
    is_pinned = request.POST.get("pinned", "true") == "true"
    metric_pins.put(
        user_of(request), found.experiment.project_id, request.POST.get("name", ""), is_pinned=is_pinned
    )
    return _shown(request, found, "table")


def _shown(request: HttpRequest, found: Trial, part: str | None) -> HttpResponseBase:
    context = {} if part == "table" else trial.context_of(request, found, "metrics")
    if part is None or part == "table":
        context |= _page(request, found)
    fragment = "trial_metrics" if part == "table" else "trial"
    return show(request, "trial_metrics", context, room="Experiments", fragment=fragment)


def _page(request: HttpRequest, found: Trial) -> dict[str, object]:
    begin = begin_of(found)
    view, chosen = query.view(request.GET, begin), query.chosen(request.GET)
    pins = metric_pins.of(user_of(request), found.experiment.project_id)
    chosen = replace(chosen, pins=[*chosen.pins, *pins])
    searcher = found.experiment.config.get("searcher") or {}
    table = metric_table.table(found.summary_metrics, chosen, searcher.get("metric", ""))
    has_epochs = any(curves.EPOCH in metrics for metrics in found.summary_metrics.values())
    size, unit = unit_of(found)
    return {
        "trial": found,
        "table": table,
        "chosen_metrics": chosen,
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
        "searcher_metric": searcher.get("metric", ""),
        "smaller_is_better": searcher.get("smaller_is_better", True),
    }  # fmt: skip


def begin_of(found: Trial) -> float:
    """When its first attempt began, or it was made; relative time counts from there. Epoch seconds."""
    first = found.task.allocations.order_by("number").values_list("assigned_at", flat=True).first()
    at: datetime = first or found.started_at
    return at.timestamp()


def unit_of(found: Trial) -> tuple[int, str]:
    """(seconds, name) of the unit of time that suits how long it has run."""
    return of_span((found.ended_at or timezone.now()).timestamp() - begin_of(found))


@page
@refusing
def data(request: HttpRequest, trial_id: int) -> HttpResponseBase:
    """The curves that `group` and `name` list, in the view of `x`, `from`, `to` and `smooth`, as JSON.

    {"run": number of the attempt, "whole": false where only what lies behind `after` is in it, "curves": [{group, name,
    x, y, smooth: {x, y} or null, total, last}], "best": {x, step, uuid} of the best checkpoint or null}. The asker
    says by `run` which attempt it knows: another one may have replaced steps, and so brings all points again.
    """
    found = trial.find(trial_id)
    wanted, view = query.wanted(request.GET), query.view(request.GET, begin_of(found))
    clock = None
    if view.axis == Axis.EPOCH:
        clock = curves.clock(found.pk, _ordered(series.groups(found.pk)))
        if clock is None:
            raise Refusal(f"The trial has not reported a metric {curves.EPOCH!r}, so there is no epoch axis.")
    is_tail = not view.needs_all and request.GET.get("run") == str(found.run_id)
    answer = [_as_json(each) for each in _read(found.pk, wanted, view, clock, is_tail=is_tail)]
    checkpoint = shown_trials.best_checkpoint(found)
    best = None if checkpoint is None else _marked(checkpoint, view, clock)
    response = JsonResponse({"run": found.run_id, "whole": not is_tail, "curves": answer, "best": best})
    response["Cache-Control"] = "no-store"
    return response


def _read(
    trial_id: int, wanted: Sequence[Wanted], view: View, clock: Clock | None, *, is_tail: bool
) -> list[Curve]:
    """Those that have points; metrics of a group that begin at one step are read together."""
    together: dict[tuple[str, int | None], list[str]] = {}
    for each in wanted:
        together.setdefault((each.group, each.after if is_tail else None), []).append(each.name)
    return [
        curve
        for (group, after), names in together.items()
        for curve in curves.read(trial_id, group, names, view, clock=clock, after_step=after)
    ]


def _ordered(groups: list[str]) -> list[str]:
    return sorted(groups, key=lambda group: (group not in FIRST_GROUPS, group))


def _as_json(each: Curve) -> dict[str, object]:
    smooth = {"x": plain(each.smooth_x), "y": plain(each.smooth_y)} if len(each.smooth_x) else None
    return {
        "group": each.group, "name": each.name, "x": plain(each.x), "y": plain(each.y), "smooth": smooth,
        "total": each.total, "last": each.last_step,
    }  # fmt: skip


def _marked(checkpoint: Checkpoint, view: View, clock: Clock | None) -> dict[str, object]:
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


@page
@refusing
def export(request: HttpRequest, trial_id: int) -> HttpResponseBase:
    """All points of the metrics that `group` and `name` list as CSV: group, metric, step, time, value."""
    found = trial.find(trial_id)
    wanted = query.wanted(request.GET)
    response = StreamingHttpResponse(blocks(found.pk, wanted), content_type="text/csv; charset=utf-8")
    safe = re.sub(r"[^A-Za-z0-9._-]+", "_", wanted[0].name)[:60]
    response["Content-Disposition"] = f'attachment; filename="trial-{found.pk}-{safe}.csv"'
    response["Cache-Control"] = "no-store"
    return response


def blocks(trial_id: int, wanted: Sequence[Wanted]) -> AsyncIterator[bytes]:
    """The file some thousand lines at a time; NaN and infinities by name, times in UTC."""
    return stepped(_written(trial_id, wanted))


def _written(trial_id: int, wanted: Sequence[Wanted]) -> Generator[bytes]:
    yield _lines([["group", "metric", "step", "time", "value"]])
    for one in wanted:
        for each in series.read(trial_id, one.group, [one.name], points=_ALL):
            for begin in range(0, each.total, LINES_PER_BLOCK):
                part = slice(begin, begin + LINES_PER_BLOCK)
                columns = (each.steps[part].tolist(), each.times[part].tolist(), each.values[part].tolist())
                yield _lines(
                    [
                        one.group,
                        one.name,
                        int(step),
                        datetime.fromtimestamp(at, UTC).isoformat(),
                        _spelt(value),
                    ]
                    for step, at, value in zip(*columns, strict=True)
                )


def _spelt(value: float) -> str:
    return {"nan": "NaN", "inf": "Infinity", "-inf": "-Infinity"}.get(text := repr(value), text)


def _lines(rows: Iterable[Sequence[object]]) -> bytes:
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows(rows)
    return text.getvalue().encode()
