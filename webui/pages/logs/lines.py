"""History for the log viewer: pages of lines, the next match of a search, the whole log as a file, ranks in columns."""

from __future__ import annotations

import uuid

from django.http import HttpRequest, HttpResponse, JsonResponse, StreamingHttpResponse
from django.http.response import HttpResponseBase

from accounts.refusals import Refusal
from logs import read
from logs.filters import Filters
from logs.read import Slice
from logs.runs import as_row
from logs.written import written
from webui.pages.frame import page, refusing, show
from webui.pages.tasks import page as tasks
from webui.pages.trials import trial
from webui.query import log_filters, seconds, whole
from webui.waiting.threads import stepped

MOST_LINES = 1000


@refusing
def lines(request: HttpRequest, task_id: str) -> HttpResponseBase:
    """Up to `limit` lines that the filters leave: before number `before` (or the end), after `after`, or about a line.

    `around` is a line's number, `at` a time in epoch seconds: half of the lines stand before it. The answer has
    `lines`, oldest first; `upto`, the newest number of the log at the time; `first` and `last`, between which
    everything was looked at; `done` and `end`, that nothing stands before or behind them. With `context` and a
    search, each match brings so many lines on both sides: `matches` are then the numbers that fit.
    """
    query = request.GET
    filters = log_filters(query)
    limit = min(whole(query, "limit") or MOST_LINES, MOST_LINES)
    context = min(whole(query, "context") or 0, read.CONTEXT_LINES_MAX)
    if context:
        limit = min(limit, read.CONTEXT_MATCHES_MAX)
    newest = read.last_number(task_id)
    line, found = _found(request, task_id, filters, limit, newest)
    answer: dict[str, object] = {
        "upto": newest,
        "first": found.first,
        "last": found.last,
        "done": found.at_start,
    }
    answer |= {"end": found.at_end, "lines": [as_row(each) for each in found.lines]}
    if line is not None:
        answer["line"] = line
    if context:
        answer["matches"] = [each.number for each in found.lines]
        answer["lines"] = [as_row(each) for each in read.around(task_id, found.lines, filters, context)]
    return JsonResponse(answer)


def _found(
    request: HttpRequest, task_id: str, filters: Filters, limit: int, newest: int
) -> tuple[int | None, Slice]:
    """The line that `around` or `at` mean, and the lines."""
    query = request.GET
    time = seconds(query, "at")
    middle = whole(query, "around") if time is None else read.number_at(task_id, time)
    after = whole(query, "after")
    if middle is not None:
        middle = max(1, min(middle, newest))
        return middle, read.slice_about(task_id, middle, filters, limit, newest)
    if after is not None:
        return None, read.slice_after(task_id, after, filters, limit, newest)
    before = whole(query, "before")
    return None, read.slice_before(task_id, newest + 1 if before is None else before, filters, limit, newest)


@refusing
def find(request: HttpRequest, task_id: str) -> HttpResponseBase:
    """The matches next to a line: `after` a number upwards, or before `before` (or the end) downwards.

    {"number" of the nearest or null, "numbers" of up to `limit` (1) of them in ascending order, "upto", to which
    everything was looked at, "done", that nothing lies beyond, "newest"}.
    """
    query = request.GET
    filters = log_filters(query)
    limit = min(whole(query, "limit") or 1, MOST_LINES)
    newest = read.last_number(task_id)
    after = whole(query, "after")
    if after is not None:
        found = read.forward(task_id, after, filters, limit)
        nearest = found.lines[:1]
    else:
        before = whole(query, "before")
        found = read.backward(task_id, newest + 1 if before is None else before, filters, limit)
        nearest = found.lines[-1:]
    return JsonResponse(
        {
            "number": nearest[0].number if nearest else None,
            "numbers": [line.number for line in found.lines],
            "upto": found.upto,
            "done": found.done,
            "newest": newest,
        }
    )


def download(request: HttpRequest, task_id: str, name: str) -> HttpResponseBase:
    """The exact bytes of the log, or of the lines that the filters leave."""
    try:
        filters = log_filters(request.GET)
    except Refusal as error:
        return HttpResponse(str(error), status=400, content_type="text/plain; charset=utf-8")
    answer = StreamingHttpResponse(
        stepped(written(task_id, filters)), content_type="text/plain; charset=utf-8"
    )
    answer["Content-Disposition"] = f'attachment; filename="{name}"'
    return answer


@page
def file_of_trial(request: HttpRequest, trial_id: int) -> HttpResponseBase:
    found = trial.find(trial_id)
    return download(request, found.task_id, f"experiment_{found.experiment_id}_trial_{found.pk}_logs.txt")


@page
def file_of_command(request: HttpRequest, command_id: uuid.UUID) -> HttpResponseBase:
    found = tasks.find(command_id)
    return download(request, found.task_id, f"command_{found.short_id}_logs.txt")


@page
def columns_of_trial(request: HttpRequest, trial_id: int) -> HttpResponse:
    """Two to eight ranks side by side, aligned in time. What they show is in the address."""
    found = trial.find(trial_id)
    experiment = found.experiment
    context = {
        "task_id": found.task_id,
        "name": f"Trial {found.pk}",
        "at": f"/trials/{found.pk}",
        "log": f"/trials/{found.pk}/logs",
        "crumbs": [
            ("Experiments", "/experiments"),
            (f"{experiment.pk} {experiment.name}", f"/experiments/{experiment.pk}"),
            (f"Trial {found.pk}", f"/trials/{found.pk}"),
        ],
    }
    return show(request, "log_columns", context, room="Experiments")


@page
def columns_of_command(request: HttpRequest, command_id: uuid.UUID) -> HttpResponse:
    found = tasks.find(command_id)
    context = {
        "task_id": found.task_id,
        "name": f"{found.kind.label} {found.short_id}",
        "at": f"/commands/{found.pk}",
        "log": f"/commands/{found.pk}",
        "crumbs": [("Tasks", "/tasks"), (f"{found.kind.label} {found.short_id}", f"/commands/{found.pk}")],
    }
    return show(request, "log_columns", context, room=tasks.ROOM)
