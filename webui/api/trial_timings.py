"""What the ranks of a trial have timed, and which of them the others wait for: `/api/v1/trials/<id>/timings`."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Annotated, Any

from pydantic import Field
from rest_framework import serializers
from rest_framework.request import Request

from accounts.rights import Right
from metrics import stragglers, timings
from metrics.stragglers import StepMatrix
from metrics.timings import CountSeries, TimingSeries
from webui.api import encoding
from webui.api.answers import Answer, Maybe, Stored
from webui.api.trials import find
from webui.api.views import ApiView

MOST_POINTS = 2000
_DIGITS = 9


class TimingsQuery(serializers.Serializer[Any]):
    names = encoding.list_of(serializers.CharField(max_length=128))
    ranks = encoding.list_of(serializers.IntegerField(min_value=0))
    firstStep = serializers.IntegerField(min_value=0, required=False)
    lastStep = serializers.IntegerField(min_value=0, required=False)
    points = serializers.IntegerField(min_value=0, max_value=MOST_POINTS, required=False, default=200)


#: columns, which may be long
Numbers = Stored[list[float | None]]
Whole = Stored[list[int]]


class RankOnHost(Answer):
    rank: int
    host: str


class TimingSummary(Answer):
    """A timing over all requested ranks and steps, in seconds."""

    name: str
    count: int
    seconds: float
    mean: float
    p50: float
    p95: float
    share: Annotated[float | None, Field(description="share of all steps' time; null if no step is marked")]


class Throughput(Answer):
    name: str
    per_second: float


class StepWork(Answer):
    """Seconds of work per step: one row per rank, each column from `firstSteps` to `lastSteps`, inclusive."""

    ranks: Whole
    first_steps: Whole
    last_steps: Whole
    seconds: Annotated[Stored[list[list[float | None]]], Field(description="null if the rank has no steps")]


class SlowRank(Answer):
    """The rank with the most work per step, and what it costs."""

    rank: int
    host: str
    is_slow: Annotated[bool, Field(description="the difference is significant")]
    work: Annotated[float, Field(description="mean seconds of a step")]
    median_work: Annotated[float, Field(description="mean seconds of a step of the median rank")]
    lost_seconds: float
    lost_share: Annotated[float, Field(description="share of all steps' time")]
    lost: Annotated[Numbers, Field(description="seconds, by column of `work`")]


class TimingColumns(Answer):
    """A timing of one rank: each point is of `count` intervals from `firstSteps` to `steps`."""

    rank: int
    name: str
    total: Annotated[int, Field(description="points in the series before reduction")]
    first_steps: Whole
    steps: Whole
    times: Annotated[Numbers, Field(description="seconds since the epoch")]
    count: Whole
    seconds: Numbers
    mean: Numbers
    min: Numbers
    max: Numbers
    p50: Numbers
    p95: Numbers


class CountColumns(Answer):
    rank: int
    name: str
    total: Annotated[int, Field(description="points in the series before reduction")]
    steps: Whole
    times: Annotated[Numbers, Field(description="seconds since the epoch")]
    per_second: Numbers


class TimingsAnswer(Answer):
    ranks: list[RankOnHost]
    summary: list[TimingSummary]
    throughput: list[Throughput]
    work: Maybe[StepWork] = None
    straggler: Maybe[SlowRank] = None
    series: Maybe[list[TimingColumns]] = None
    counts: Maybe[list[CountColumns]] = None


class TrialTimings(ApiView):
    """Timings of a trial by rank, as columns; all times are seconds.

    `series` and `counts` have at most `points` points each, only for `names` and `ranks` if those are given; with
    `points=0` there are none. `summary`, `throughput`, `work` (work per step, by rank and steps; null if a rank
    has none) and `straggler` (absent if steps are not marked) cover all names and ranks between both steps.
    """

    rights = {"GET": Right.READ | Right.RUN}
    queries = {"GET": TimingsQuery}

    def get(self, request: Request, trial_id: int) -> TimingsAnswer:
        task_id = find(request, trial_id).task_id
        query = self.query(request)
        first, last = query.get("firstStep"), query.get("lastStep")
        found = timings.read(task_id, first_step=first, last_step=last, points=MOST_POINTS)
        work, slow = stragglers.of_timings(found)
        answer = TimingsAnswer(
            ranks=[RankOnHost(rank=rank, host=host) for rank, host in sorted(found.hosts.items())],
            summary=[TimingSummary.of(one, count=int(one.count)) for one in timings.summaries(found.timings)],
            throughput=[
                Throughput(name=name, per_second=rate)
                for name, rate in timings.throughput(found.counts).items()
            ],
            work=_matrix(work) if work else None,
            straggler=SlowRank.of(slow, host=found.hosts[slow.rank], lost=_numbers(slow.lost))
            if slow
            else None,
        )
        if query["points"]:
            names, ranks = query.get("names") or None, query.get("ranks") or None
            shown = timings.read(
                task_id, names, ranks=ranks, first_step=first, last_step=last, points=query["points"]
            )
            answer.series = [_series(one) for one in shown.timings]
            answer.counts = [_count(one) for one in shown.counts]
        return answer


def _matrix(matrix: StepMatrix) -> StepWork:
    return StepWork(
        ranks=matrix.ranks,
        first_steps=_whole(matrix.first_steps),
        last_steps=_whole(matrix.last_steps),
        seconds=[_numbers(row) for row in matrix.seconds],
    )


def _series(one: TimingSeries) -> TimingColumns:
    return TimingColumns.of(
        one,
        first_steps=_whole(one.first_steps),
        steps=_whole(one.steps),
        times=_numbers(one.times),
        count=_whole(one.count),
        seconds=_numbers(one.total_seconds),
        mean=_numbers(one.mean),
        min=_numbers(one.low),
        max=_numbers(one.high),
        p50=_numbers(one.p50),
        p95=_numbers(one.p95),
    )


def _count(one: CountSeries) -> CountColumns:
    return CountColumns.of(
        one, steps=_whole(one.steps), times=_numbers(one.times), per_second=_numbers(one.per_second)
    )


def _whole(values: Iterable[float]) -> list[int]:
    return [int(value) for value in values]


def _numbers(values: Iterable[float]) -> list[float | None]:
    return [round(float(value), _DIGITS) if math.isfinite(value) else None for value in values]
