"""The job queue: its order, its numbers, and edits of it."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from django.db.models import ExpressionWrapper, F, Min
from django.db.models import fields as columns
from django.db.models.functions import TruncDay
from django.utils import timezone
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from hosts.models import ResourcePool
from hosts.pools import default_pool
from jobs import queue_edits
from jobs.models import Job
from webui.api import encoding
from webui.api.errors import Missing
from webui.api.job_queue_edits import JobUpdates, refusals, updates_of
from webui.api.job_queue_rows import STATES, encode_row, rows, with_state
from webui.api.permissions import actor, person
from webui.api.views import ApiView, Json


class JobsQuery(encoding.PageQuery):
    resourcePool = serializers.CharField(required=False, allow_blank=True)
    states = serializers.ListField(
        child=serializers.ChoiceField(choices=["STATE_UNSPECIFIED", *STATES.values()]), required=False
    )


def pool_named(name: str | None) -> ResourcePool:
    """The pool; an empty name means the default one. Raises Missing."""
    if not name:
        return default_pool()
    pool = ResourcePool.objects.filter(name=name).first()
    if pool is None:
        raise Missing(f"Pool {name} not found")
    return pool


class JobQueueV2(ApiView):
    """The queue of one pool, in order; each job wrapped as `full`."""

    queries = {"GET": JobsQuery}

    def get(self, request: Request) -> Response:
        return Response(self._page(request, lambda row: {"full": encode_row(row)}))

    def _page(self, request: Request, encode: Any) -> Json:
        query = self.query(request)
        states = [state for state in query.get("states") or [] if state != "STATE_UNSPECIFIED"]
        found = with_state(rows(pool_named(query.get("resourcePool"))), states)
        if query["orderBy"] == "ORDER_BY_DESC":
            found.reverse()
        return encoding.page(found, query, "jobs", encode)


class JobQueue(JobQueueV2):
    """The same for older clients, not wrapped; edits of the queue."""

    bodies = {"POST": JobUpdates}

    def get(self, request: Request) -> Response:
        return Response(self._page(request, encode_row))

    def post(self, request: Request) -> Response:
        """All edits are made, or none; the answer says what changed, and whether it can be undone."""
        updates = updates_of(self.body(request))
        with refusals():
            sentences = queue_edits.apply(updates, actor=actor(request), role=person(request).role)
        return Response({"changes": sentences, "undo": bool(sentences)})


class StatsQuery(serializers.Serializer[Any]):
    resourcePools = serializers.ListField(child=serializers.CharField(), required=False)


class JobQueueStats(ApiView):
    """How many jobs wait and run in each pool, and how long jobs of the last 30 days waited, by day."""

    queries = {"GET": StatsQuery}

    def get(self, request: Request) -> Response:
        names = self.query(request).get("resourcePools")
        pools = ResourcePool.objects.filter(name__in=names) if names else ResourcePool.objects.all()
        return Response({"results": [_stats(pool) for pool in pools]})


def queue_counts(pool: ResourcePool) -> Json:
    found = rows(pool)
    queued = sum(row.state == "queued" for row in found)
    return {"queuedCount": queued, "scheduledCount": len(found) - queued}


def _stats(pool: ResourcePool) -> Json:
    since = timezone.now() - timedelta(days=30)
    waited = ExpressionWrapper(F("first") - F("submitted_at"), output_field=columns.DurationField())
    days = (
        Job.objects.filter(pool=pool, submitted_at__gte=since)
        .annotate(first=Min("tasks__allocations__assigned_at"))
        .filter(first__isnull=False)
        .annotate(waited=waited, day=TruncDay("submitted_at"))
    )
    per_day: dict[datetime, list[float]] = {}
    for day, duration in days.values_list("day", "waited"):
        per_day.setdefault(day, []).append(duration.total_seconds())
    aggregates = [
        {"periodStart": day.astimezone(UTC).date().isoformat(), "seconds": sum(values) / len(values)}
        for day, values in sorted(per_day.items())
    ]
    return {"resourcePool": pool.name, "stats": queue_counts(pool), "aggregates": aggregates}
