"""Promised starts of a pool against real ones, in the last week."""

from __future__ import annotations

from django.utils import timezone
from rest_framework.request import Request

from accounts.rights import Right
from shown import forecasts
from webui.api.answers import Answer, Maybe, Time
from webui.api.job_queue import pool_named
from webui.api.views import ApiView


class ForecastMiss(Answer):
    """`errorSeconds`: how far outside of the range the start was, below 0: sooner. `edited`: the queue was edited."""

    job_id: str
    label: str
    promised_at: Time
    earliest: Time
    latest: Time
    started_at: Maybe[Time] = None
    missed_at: Maybe[Time] = None
    why: str
    edited: bool
    error_seconds: float


class PoolForecastsAnswer(Answer):
    """In percent of `promises`; `medianErrorSeconds` is that of the starts outside of their range."""

    resource_pool: str
    days: int
    promises: int
    inside: Maybe[float] = None
    sooner: Maybe[float] = None
    later: Maybe[float] = None
    withdrawn: Maybe[float] = None
    edited: int
    median_width_seconds: Maybe[float] = None
    median_error_seconds: Maybe[float] = None
    worst: list[ForecastMiss]


class PoolForecasts(ApiView):
    """How often the first forecast of a wait was right in the last seven days, and the worst misses.

    `withdrawn`: forecasts that were missed and became "not known" before the start. `edited`: how many starts outside
    of their range came after a user had edited the queue.
    """

    rights = {"GET": Right.READ}

    def get(self, request: Request, name: str) -> PoolForecastsAnswer:
        pool = pool_named(name)
        found = forecasts.record(forecasts.outcomes(pool, timezone.now()))
        return PoolForecastsAnswer.of(
            found,
            resource_pool=pool.name,
            days=forecasts.DAYS,
            median_width_seconds=found.median_width,
            median_error_seconds=found.median_error,
            worst=[ForecastMiss.of(each, error_seconds=each.error) for each in found.worst],
        )
