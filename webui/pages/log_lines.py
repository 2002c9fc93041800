"""History for the log viewer: pages of lines read backwards from a number, and the whole log as a file."""

from __future__ import annotations

import re
import uuid
from collections.abc import Iterator

from django.http import HttpRequest, HttpResponse, JsonResponse, QueryDict, StreamingHttpResponse

from logs import read
from logs.filters import BadPattern, PatternTooSlow
from logs.levels import Level
from logs.lines import Line, shown
from webui.live.log_download import blocks
from webui.pages import commands, trial
from webui.pages.frame import page

MOST_LINES = 1000
RANKS_MAX = 10_000

_RANKS = re.compile(r"(-1|[0-9]{1,6})(?:-([0-9]{1,6}))?")


@page
def of_trial(request: HttpRequest, trial_id: int) -> HttpResponse:
    return lines(request, trial.find(trial_id).task_id)


@page
def of_command(request: HttpRequest, command_id: uuid.UUID) -> HttpResponse:
    return lines(request, commands.find(command_id).task_id)


def lines(request: HttpRequest, task_id: str) -> HttpResponse:
    """Up to `limit` lines before number `before` (none: the end) that the filters leave, oldest first.

    `upto` is the newest number of the log at the time, `first` the number down to which everything was looked
    at, `done` that nothing stands before it.
    """
    query = request.GET
    newest = read.last_number(task_id)
    before = int(query["before"]) if query.get("before", "").isdigit() else newest + 1
    limit = min(MOST_LINES, int(query["limit"])) if query.get("limit", "").isdigit() else MOST_LINES
    try:
        found = read.backward(task_id, before, _filters(query), limit)
    except (BadPattern, PatternTooSlow) as error:
        return JsonResponse({"message": str(error)}, status=400)
    return JsonResponse(
        {
            "lines": [as_row(line) for line in found.lines],
            "upto": newest,
            "first": found.upto,
            "done": found.done,
        }
    )


def as_row(line: Line) -> list[object]:
    """A line as the viewer and its socket have it: number, time, rank, stream, level, host, text."""
    return [line.number, line.time, line.rank, line.stream, line.level, line.host, shown(line.text)]


def _filters(query: QueryDict) -> read.Filters:
    ranks = frozenset(rank for text in query.getlist("rank") for rank in _ranks(text))
    levels = frozenset(Level[name] for name in query.getlist("level") if name in Level.__members__)
    filters = read.Filters(ranks=ranks, levels=levels)
    return filters.searching(query.get("search", ""), is_regex="regex" in query)


def _ranks(text: str) -> Iterator[int]:
    """`0-2,5` and `-1` for lines outside any rank; what is none is left out."""
    for part in text.split(",")[:RANKS_MAX]:
        if found := _RANKS.fullmatch(part):
            first = int(found[1])
            yield from range(first, min(int(found[2] or first), first + RANKS_MAX) + 1)


@page
def file_of_trial(request: HttpRequest, trial_id: int) -> HttpResponse | StreamingHttpResponse:
    found = trial.find(trial_id)
    return download(request, found.task_id, f"experiment_{found.experiment_id}_trial_{found.pk}_logs.txt")


@page
def file_of_command(request: HttpRequest, command_id: uuid.UUID) -> HttpResponse | StreamingHttpResponse:
    found = commands.find(command_id)
    return download(request, found.task_id, f"command_{found.short_id}_logs.txt")


def download(request: HttpRequest, task_id: str, name: str) -> HttpResponse | StreamingHttpResponse:
    """The exact bytes of the log, all ranks or those of the query."""
    answer = StreamingHttpResponse(
        blocks(task_id, _filters(request.GET)), content_type="text/plain; charset=utf-8"
    )
    answer["Content-Disposition"] = f'attachment; filename="{name}"'
    return answer
