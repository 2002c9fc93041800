"""What the time of held slots went to: by user, pool, experiment and period, and of one trial."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any

from django.http import HttpRequest, HttpResponse, HttpResponseBase
from pydantic import Field
from rest_framework import serializers
from rest_framework.request import Request

from accounts.rights import Right
from dispatch.keeping import usage
from dispatch.keeping.usage import Periods, Unit
from shown import goodput
from shown.goodput import Line, Piece, Told
from trainmaster import csv_text
from webui.api.answers import Answer, Media, one_of
from webui.api.async_views import Principal, async_view
from webui.api.trials import find
from webui.api.views import ApiView, Json, checked
from webui.waiting.threads import reading

MOST: dict[Unit, int] = {"day": 366, "week": 104, "month": 36}
MOST_LINES = 1000
_COLUMNS = ["period", "group", "name", "part", "after_stop", "slot_seconds"]


class GoodputQuery(serializers.Serializer[Any]):
    startDate = serializers.CharField()
    endDate = serializers.CharField()
    period = serializers.ChoiceField(list(MOST), default="day")
    groupBy = serializers.ChoiceField(list(goodput.GROUPS), default="total")
    limit = serializers.IntegerField(
        default=goodput.MOST_LINES, min_value=1, max_value=MOST_LINES, help_text="lines; the CSV has all"
    )


class PartRecord(Answer):
    """A part of held time. `afterStop`: of steps done again, the reason code of the end after which they were."""

    part: Annotated[str, one_of(*goodput.WORDS)]
    after_stop: str
    words: str
    slot_seconds: float
    share: Annotated[float, Field(description="of the time held")]


class GoodputRecord(Answer):
    """Held time and its parts, which add up to it."""

    slot_seconds: float
    progress: Annotated[
        float | None, Field(description="share of new progress in what is told; null if unknown")
    ]
    parts: list[PartRecord]


class PeriodRecord(GoodputRecord):
    period_start: str


class GoodputLine(GoodputRecord):
    """A user, a pool, an experiment (its id; empty: tasks of none), or with `total` all slots (empty)."""

    name: str
    periods: list[PeriodRecord]


class GoodputAnswer(Answer):
    """The lines with the most slot-seconds; `rest`: the `more` others as one, null if there are none."""

    lines: list[GoodputLine]
    more: int
    rest: GoodputRecord | None


def _read(query: Json) -> tuple[Periods, str]:
    unit: Unit = query["period"]
    return usage.between(unit, query["startDate"], query["endDate"], most=MOST[unit]), query["groupBy"]


class Goodput(ApiView):
    """What the time of held slots went to, in days, weeks (from Monday) or months in UTC."""

    rights = {"GET": Right.READ}
    queries = {"GET": GoodputQuery}

    def get(self, request: Request) -> GoodputAnswer:
        query = self.query(request)
        periods, group = _read(query)
        top = goodput.top(periods, group, query["limit"])
        rest = GoodputRecord(**_fields(top.rest)) if top.rest else None
        return GoodputAnswer(lines=[_line(each) for each in top.lines], more=top.more, rest=rest)


class TrialGoodput(ApiView):
    """What the slots that a trial has held so far went to; nothing for a detached run."""

    rights = {"GET": Right.READ}

    def get(self, request: Request, trial_id: int) -> GoodputRecord:
        return GoodputRecord(**_fields(goodput.of_trial(find(request, trial_id)) or goodput.told({})))


@async_view("GET", Right.READ, answer=Media("text/csv"))
async def as_csv(request: HttpRequest, who: Principal) -> HttpResponseBase:
    """One line per period, name and part; `start_date`, `end_date`, `period`, `group_by`."""
    periods, group = _read(checked(GoodputQuery, request.GET))
    found = await reading(goodput.lines, periods, group)
    rows = [row for line in found for row in _rows(line, group)]
    return HttpResponse(csv_text.lines([_COLUMNS, *rows]).encode(), content_type="text/csv")


def _rows(line: Line, group: str) -> Iterator[list[object]]:
    for period, each in line.periods:
        for piece in each.pieces:
            yield [period, group, line.key, piece.part, piece.stop, f"{piece.seconds:.6f}"]


def _line(line: Line) -> GoodputLine:
    periods = [PeriodRecord(period_start=name, **_fields(each)) for name, each in line.periods]
    return GoodputLine(name=line.key, periods=periods, **_fields(line))


def _fields(found: Told) -> Json:
    parts = [_part(each) for each in found.pieces]
    return {"slot_seconds": found.seconds, "progress": found.progress, "parts": parts}


def _part(piece: Piece) -> PartRecord:
    return PartRecord(
        part=piece.part,
        after_stop=piece.stop,
        words=piece.word,
        slot_seconds=piece.seconds,
        share=piece.percent / 100,
    )
