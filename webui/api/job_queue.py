"""The job queue: its order, its numbers, and edits of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import UTC, timedelta
from typing import Any, ClassVar

from django.db.models import Avg, DurationField, ExpressionWrapper, F
from django.db.models.functions import TruncDay
from django.utils import timezone
from rest_framework import serializers
from rest_framework.request import Request

from accounts.refusals import Code, refused_as
from accounts.rights import Right
from hosts.models import ResourcePool
from hosts.pools import default_pool, named
from jobs import queue_edits
from jobs.models import FirstStart
from shown.queue import lines, rows, standing
from shown.queue.rows import JobRow
from webui.api import encoding
from webui.api.answers import Answer, Pagination
from webui.api.errors import existing
from webui.api.job_queue_edits import JobUpdates, updates_of
from webui.api.job_queue_rows import STATES, JobRecord, encode_row
from webui.api.permissions import actor, person
from webui.api.protojson import EnumField
from webui.api.views import ApiView, Json

STATS_DAYS = 30


class JobsQuery(encoding.PageQuery):
    resourcePool = serializers.CharField(required=False, allow_blank=True)
    states = encoding.list_of(EnumField("state of jobs", ["STATE_UNSPECIFIED", *STATES.values()]))
    users = encoding.list_of(serializers.CharField())


def pool_named(name: str | None) -> ResourcePool:
    """The pool; an empty name means the default one. Raises Missing."""
    if not name:
        return default_pool()
    return named(name) or existing(ResourcePool.objects, "Pool", name=name)


class WrappedJobRecord(Answer):
    full: JobRecord


class WrappedJobsAnswer(Answer):
    jobs: list[WrappedJobRecord]
    pagination: Pagination


class JobsAnswer(Answer):
    jobs: list[JobRecord]
    pagination: Pagination


class QueueEditsAnswer(Answer):
    """A sentence for each change, and whether the caller can undo them."""

    changes: list[str]
    undo: bool


class JobQueueV2(ApiView):
    """The queue of one pool, in order; each job wrapped as `full`."""

    rights = {"GET": Right.READ}
    queries = {"GET": JobsQuery}
    answers: ClassVar[Mapping[str, Any]] = {"GET": WrappedJobsAnswer}

    def get(self, request: Request) -> Json:
        return self._page(request, lambda row: {"full": encode_row(row)})

    def _page(self, request: Request, encode: Callable[[JobRow], Json]) -> Json:
        query = self.query(request)
        pool = pool_named(query.get("resourcePool"))
        found, total = lines.page(
            pool,
            states=[name for name, word in STATES.items() if word in (query.get("states") or [])],
            users=query.get("users") or (),
            descending=query["orderBy"] == "ORDER_BY_DESC",
            offset=min(query["offset"], lines.NO_LIMIT),
            limit=encoding.rows_asked(query),
        )
        return {
            "jobs": [encode(row) for row in rows.of(pool, found)],
            "pagination": encoding.pagination(query, total),
        }


class JobQueue(JobQueueV2):
    """The queue for older clients, without the wrapping; and edits of the queue."""

    rights = {"GET": Right.READ, "POST": Right.EDIT}
    bodies = {"POST": JobUpdates}
    answers = {"GET": JobsAnswer}

    def get(self, request: Request) -> Json:
        return self._page(request, encode_row)

    def post(self, request: Request) -> QueueEditsAnswer:
        """Apply all edits or none; the answer says what changed, and whether it can be undone."""
        updates = updates_of(self.body(request))
        with refused_as(Code.INVALID):
            changes = queue_edits.apply(updates, actor=actor(request), role=person(request).acting_role)
        return QueueEditsAnswer(changes=[str(change) for change in changes], undo=bool(changes))


class QueueCounts(Answer):
    queued_count: int
    scheduled_count: int


class WaitOfDay(Answer):
    """Mean time in the queue of the jobs submitted on a day."""

    period_start: str
    seconds: float


class PoolQueueStats(Answer):
    resource_pool: str
    stats: QueueCounts
    aggregates: list[WaitOfDay]


class QueueStatsAnswer(Answer):
    results: list[PoolQueueStats]


class StatsQuery(serializers.Serializer[Any]):
    resourcePools = encoding.list_of(serializers.CharField())


class JobQueueStats(ApiView):
    """How many jobs wait and run in each pool, and how long jobs waited, by day, in the last 30 days."""

    rights = {"GET": Right.READ}
    queries = {"GET": StatsQuery}

    def get(self, request: Request) -> QueueStatsAnswer:
        names = self.query(request).get("resourcePools")
        pools = ResourcePool.objects.filter(name__in=names) if names else ResourcePool.objects.all()
        return QueueStatsAnswer(results=[_stats(pool) for pool in pools])


def _stats(pool: ResourcePool) -> PoolQueueStats:
    scheduled, queued = standing.counts([pool.pk]).get(pool.pk, (0, 0))
    since = timezone.now() - timedelta(days=STATS_DAYS)
    waited = ExpressionWrapper(F("at") - F("submitted_at"), output_field=DurationField())
    days = (
        FirstStart.objects.filter(pool=pool, submitted_at__gte=since)
        .annotate(day=TruncDay("submitted_at", tzinfo=UTC))
        .values("day")
        .annotate(mean=Avg(waited))
        .order_by("day")
    )
    aggregates = [
        WaitOfDay(period_start=day["day"].date().isoformat(), seconds=day["mean"].total_seconds())
        for day in days
    ]
    stats = QueueCounts(queued_count=queued, scheduled_count=scheduled)
    return PoolQueueStats(resource_pool=pool.name, stats=stats, aggregates=aggregates)
