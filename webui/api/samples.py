"""What hosts measured while jobs ran: `/api/v1/trials/<id>/samples`, `tasks/<id>/samples`, `hosts/<name>/samples`."""

from __future__ import annotations

from collections.abc import Collection
from typing import Annotated, Any

import numpy as np
from pydantic import Field
from rest_framework import serializers
from rest_framework.request import Request

from accounts.rights import Right
from metrics import samples
from metrics.names import GROUPS, METRICS
from metrics.packing import Floats
from metrics.samples import SampleSeries
from webui.api import encoding
from webui.api.agents import host_named
from webui.api.answers import Answer, Maybe, Stored, one_of
from webui.api.errors import BadRequest
from webui.api.permissions import person
from webui.api.tasks import own_task
from webui.api.trials import find
from webui.api.views import ApiView, Json

MOST_POINTS = 10_000
HOST_SECONDS = 3600.0
_DIGITS = 3  # of bytes, percent and watts


class SamplesQuery(serializers.Serializer[Any]):
    """`from` and `to` are epoch seconds. Both words belong to Python, so the fields are added by name."""

    names = encoding.list_of(serializers.ChoiceField(choices=list(METRICS)))
    groups = encoding.list_of(serializers.ChoiceField(choices=GROUPS))
    points = serializers.IntegerField(
        min_value=samples.FEWEST_POINTS,
        max_value=MOST_POINTS,
        required=False,
        default=samples.DEFAULT_POINTS,
    )

    def get_fields(self) -> dict[str, Any]:
        return {
            **super().get_fields(),
            "from": serializers.FloatField(min_value=0, required=False),
            "to": serializers.FloatField(min_value=0, required=False),
        }


class TaskSamplesQuery(SamplesQuery):
    hosts = encoding.list_of(serializers.CharField(max_length=128))


class SampleColumns(Answer):
    """A series of one host: each point covers a span of time, in which values were between `low` and `high`."""

    host: str
    name: str
    part: Maybe[Annotated[str, Field(description="a GPU's UUID or a rank")]] = None
    title: str
    unit: str
    group: Annotated[str, one_of(*GROUPS)]
    total: Annotated[int, Field(description="points in the series before reduction")]
    times: Annotated[Stored[list[float]], Field(description="seconds since the epoch")]
    low: Stored[list[float]]
    high: Stored[list[float]]
    mean: Stored[list[float]]


class SamplesAnswer(Answer):
    series: list[SampleColumns]


class TaskSamples(ApiView):
    """Hardware samples from a task's hosts, as columns, in the same format as a trial's."""

    rights = {"GET": Right.READ}
    queries = {"GET": TaskSamplesQuery}

    def get(self, request: Request, task_id: str) -> SamplesAnswer:
        own_task(person(request), task_id)
        return _of_task(task_id, self.query(request))


class TrialSamples(ApiView):
    """Hardware samples from a trial's hosts while it ran, as columns.

    A series has at most `points` points, each with the `low`, `high` and `mean` of the samples in a span of time.
    `times` are epoch seconds, `part` is a GPU's UUID or a rank, `total` is the number of points before reduction.
    """

    rights = {"GET": Right.READ | Right.RUN}
    queries = {"GET": TaskSamplesQuery}

    def get(self, request: Request, trial_id: int) -> SamplesAnswer:
        task_id = find(request, trial_id).task_id
        return _of_task(task_id, self.query(request))


class HostSamples(ApiView):
    """Hardware samples from a host, whatever ran there; by default for the last hour."""

    rights = {"GET": Right.READ}
    queries = {"GET": SamplesQuery}

    def get(self, request: Request, name: str) -> SamplesAnswer:
        host, query = host_named(name), self.query(request)
        first, last = _window(query)
        begin, _ = samples.last_seconds(HOST_SECONDS)
        found = samples.of_host(
            host.pk,
            _names(query),
            first_time=first if first is not None else begin,
            last_time=last,
            points=query["points"],
        )
        return SamplesAnswer(series=[_series(one) for one in found])


def _of_task(task_id: str, query: Json) -> SamplesAnswer:
    first, last = _window(query)
    found = samples.of_task(
        task_id,
        _names(query),
        hosts=query.get("hosts") or None,
        first_time=first,
        last_time=last,
        points=query["points"],
    )
    return SamplesAnswer(series=[_series(one) for one in found])


def _window(query: Json) -> tuple[float | None, float | None]:
    first, last = query.get("from"), query.get("to")
    if first is not None and last is not None and first > last:
        raise BadRequest(f"from ({first:.3f}) is after to ({last:.3f}); swap them.")
    return first, last


def _names(query: Json) -> Collection[str] | None:
    """The names of the samples asked for, by name or by group; None means all."""
    asked, groups = query.get("names") or [], query.get("groups") or []
    if not asked and not groups:
        return None
    return {*asked, *(metric.name for metric in METRICS.values() if metric.group in groups)}


def _series(one: SampleSeries) -> SampleColumns:
    return SampleColumns.of(
        one,
        part=one.part or None,
        title=one.metric.title,
        unit=one.metric.unit,
        group=one.metric.group,
        times=_plain(one.times),
        low=_plain(one.low),
        high=_plain(one.high),
        mean=_plain(one.mean),
    )


def _plain(values: Floats) -> list[float]:
    return list(np.round(values, _DIGITS).tolist())
