"""What the ranks of a trial have timed, and which of them the others wait for: `/api/v1/trials/<id>/timings`."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from metrics import stragglers, timings
from metrics.stragglers import StepMatrix, Straggler
from metrics.timings import CountSeries, NameSummary, TimingSeries
from webui.api.trials import find
from webui.api.views import ApiView, Json

MOST_POINTS = 2000
_DIGITS = 9


class TimingsQuery(serializers.Serializer[Any]):
    names = serializers.ListField(child=serializers.CharField(max_length=128), required=False)
    ranks = serializers.ListField(child=serializers.IntegerField(min_value=0), required=False)
    firstStep = serializers.IntegerField(min_value=0, required=False)
    lastStep = serializers.IntegerField(min_value=0, required=False)
    points = serializers.IntegerField(min_value=0, max_value=MOST_POINTS, required=False, default=200)


class TrialTimings(ApiView):
    """Timings of a trial by rank, as columns; all times are seconds.

    `series` and `counts` have at most `points` points each, of `names` and `ranks` alone where those are given; with
    `points=0` there are none. `summary`, `throughput`, `work` (a step's own work by rank and steps, null where a rank
    has none) and `straggler` (absent where steps are not marked) are of all names and ranks between both steps.
    """

    run_methods = frozenset({"GET"})
    queries = {"GET": TimingsQuery}

    def get(self, request: Request, trial_id: int) -> Response:
        task_id = find(request, trial_id).task_id
        query = self.query(request)
        first, last = query.get("firstStep"), query.get("lastStep")
        found = timings.read(task_id, first_step=first, last_step=last, points=MOST_POINTS)
        answer: Json = {
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
            answer["straggler"] = {**_straggler(slow), "host": found.hosts[slow.rank]}
        if query["points"]:
            names, ranks = query.get("names") or None, query.get("ranks") or None
            shown = timings.read(
                task_id, names, ranks=ranks, first_step=first, last_step=last, points=query["points"]
            )
            answer |= {
                "series": [_series(one) for one in shown.timings],
                "counts": [_count(one) for one in shown.counts],
            }
        return Response(answer)


def _summary(one: NameSummary) -> Json:
    row = {
        "name": one.name,
        "count": int(one.count),
        "seconds": one.seconds,
        "mean": one.mean,
        "p50": one.p50,
    }
    return {**row, "p95": one.p95, "share": one.share}


def _matrix(matrix: StepMatrix) -> Json:
    return {
        "ranks": matrix.ranks,
        "firstSteps": _whole(matrix.first_steps),
        "lastSteps": _whole(matrix.last_steps),
        "seconds": [_numbers(row) for row in matrix.seconds],
    }


def _straggler(slow: Straggler) -> Json:
    return {
        "rank": slow.rank,
        "isSlow": slow.is_slow,
        "work": slow.work,
        "medianWork": slow.median_work,
        "lostSeconds": slow.lost_seconds,
        "lostShare": slow.lost_share,
        "lost": _numbers(slow.lost),
    }


def _series(one: TimingSeries) -> Json:
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


def _count(one: CountSeries) -> Json:
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
