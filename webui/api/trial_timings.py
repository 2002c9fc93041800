"""What the ranks of a trial have timed, and which of them the others wait for: `/api/v1/trials/<id>/timings`."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Annotated, Any, NotRequired

from pydantic import Field
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response
from typing_extensions import TypedDict

from metrics import stragglers, timings
from metrics.stragglers import StepMatrix, Straggler
from metrics.timings import CountSeries, NameSummary, TimingSeries
from webui.api.trials import find
from webui.api.views import ApiView

MOST_POINTS = 2000
_DIGITS = 9


class TimingsQuery(serializers.Serializer[Any]):
    names = serializers.ListField(child=serializers.CharField(max_length=128), required=False)
    ranks = serializers.ListField(child=serializers.IntegerField(min_value=0), required=False)
    firstStep = serializers.IntegerField(min_value=0, required=False)
    lastStep = serializers.IntegerField(min_value=0, required=False)
    points = serializers.IntegerField(min_value=0, max_value=MOST_POINTS, required=False, default=200)


class RankOnHost(TypedDict):
    rank: int
    host: str


class TimingSummary(TypedDict):
    """A timing over all ranks and steps that were asked for, in seconds."""

    name: str
    count: int
    seconds: float
    mean: float
    p50: float
    p95: float
    share: Annotated[float | None, Field(description="of all steps' time; null where no step is marked")]


class Throughput(TypedDict):
    name: str
    perSecond: float


class StepWork(TypedDict):
    """Seconds of a step's own work: a row per rank, a column from `firstSteps` to `lastSteps`, both included."""

    ranks: list[int]
    firstSteps: list[int]
    lastSteps: list[int]
    seconds: Annotated[list[list[float | None]], Field(description="null where the rank has no step")]


class SlowRank(TypedDict):
    """The rank with most work a step, and its price."""

    rank: int
    host: str
    isSlow: Annotated[bool, Field(description="the difference is worth a word")]
    work: Annotated[float, Field(description="mean seconds of a step")]
    medianWork: Annotated[float, Field(description="the same of the median rank")]
    lostSeconds: float
    lostShare: Annotated[float, Field(description="of all steps' time")]
    lost: Annotated[list[float | None], Field(description="seconds, by column of `work`")]


class TimingColumns(TypedDict):
    """A timing of one rank: each point is of `count` intervals from `firstSteps` to `steps`."""

    rank: int
    name: str
    total: Annotated[int, Field(description="points that it had before it was reduced")]
    firstSteps: list[int]
    steps: list[int]
    times: Annotated[list[float | None], Field(description="seconds since the epoch")]
    count: list[int]
    seconds: list[float | None]
    mean: list[float | None]
    min: list[float | None]
    max: list[float | None]
    p50: list[float | None]
    p95: list[float | None]


class CountColumns(TypedDict):
    rank: int
    name: str
    total: Annotated[int, Field(description="points that it had before it was reduced")]
    steps: list[int]
    times: Annotated[list[float | None], Field(description="seconds since the epoch")]
    perSecond: list[float | None]


class TimingsAnswer(TypedDict):
    ranks: list[RankOnHost]
    summary: list[TimingSummary]
    throughput: list[Throughput]
    work: NotRequired[StepWork]
    straggler: NotRequired[SlowRank]
    series: NotRequired[list[TimingColumns]]
    counts: NotRequired[list[CountColumns]]


class TrialTimings(ApiView):
    """Timings of a trial by rank, as columns; all times are seconds.

    `series` and `counts` have at most `points` points each, of `names` and `ranks` alone where those are given; with
    `points=0` there are none. `summary`, `throughput`, `work` (a step's own work by rank and steps, null where a rank
    has none) and `straggler` (absent where steps are not marked) are of all names and ranks between both steps.
    """

    run_methods = frozenset({"GET"})
    queries = {"GET": TimingsQuery}
    answers = {"GET": TimingsAnswer}

    def get(self, request: Request, trial_id: int) -> Response:
        task_id = find(request, trial_id).task_id
        query = self.query(request)
        first, last = query.get("firstStep"), query.get("lastStep")
        found = timings.read(task_id, first_step=first, last_step=last, points=MOST_POINTS)
        answer: TimingsAnswer = {
            "ranks": [{"rank": rank, "host": host} for rank, host in sorted(found.hosts.items())],
            "summary": [_summary(one) for one in timings.summaries(found.timings)],
            "throughput": [
                {"name": name, "perSecond": rate} for name, rate in timings.throughput(found.counts).items()
            ],
        }
        work, slow = stragglers.of_timings(found)
        if work:
            answer["work"] = _matrix(work)
        if slow:
            answer["straggler"] = _straggler(slow, found.hosts[slow.rank])
        if query["points"]:
            names, ranks = query.get("names") or None, query.get("ranks") or None
            shown = timings.read(
                task_id, names, ranks=ranks, first_step=first, last_step=last, points=query["points"]
            )
            answer["series"] = [_series(one) for one in shown.timings]
            answer["counts"] = [_count(one) for one in shown.counts]
        return Response(answer)


def _summary(one: NameSummary) -> TimingSummary:
    return {
        "name": one.name,
        "count": int(one.count),
        "seconds": one.seconds,
        "mean": one.mean,
        "p50": one.p50,
        "p95": one.p95,
        "share": one.share,
    }


def _matrix(matrix: StepMatrix) -> StepWork:
    return {
        "ranks": matrix.ranks,
        "firstSteps": _whole(matrix.first_steps),
        "lastSteps": _whole(matrix.last_steps),
        "seconds": [_numbers(row) for row in matrix.seconds],
    }


def _straggler(slow: Straggler, host: str) -> SlowRank:
    return {
        "rank": slow.rank,
        "host": host,
        "isSlow": slow.is_slow,
        "work": slow.work,
        "medianWork": slow.median_work,
        "lostSeconds": slow.lost_seconds,
        "lostShare": slow.lost_share,
        "lost": _numbers(slow.lost),
    }


def _series(one: TimingSeries) -> TimingColumns:
    return {
        "rank": one.rank,
        "name": one.name,
        "total": one.total,
        "firstSteps": _whole(one.first_steps),
        "steps": _whole(one.steps),
        "times": _numbers(one.times),
        "count": _whole(one.count),
        "seconds": _numbers(one.total_seconds),
        "mean": _numbers(one.mean),
        "min": _numbers(one.low),
        "max": _numbers(one.high),
        "p50": _numbers(one.p50),
        "p95": _numbers(one.p95),
    }


def _count(one: CountSeries) -> CountColumns:
    return {
        "rank": one.rank,
        "name": one.name,
        "total": one.total,
        "steps": _whole(one.steps),
        "times": _numbers(one.times),
        "perSecond": _numbers(one.per_second),
    }


def _whole(values: Iterable[float]) -> list[int]:
    return [int(value) for value in values]


def _numbers(values: Iterable[float]) -> list[float | None]:
    return [round(float(value), _DIGITS) if math.isfinite(value) else None for value in values]
