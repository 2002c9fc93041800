"""Commands with everything that lists and single views show of them."""

from __future__ import annotations

from django.db.models import OuterRef, Prefetch, Q, QuerySet

from commands.models import Command
from jobs import phases
from jobs.models import Allocation, Member


def with_parts() -> QuerySet[Command]:
    """Commands with phase, owner, pool, task, service, attempts and their hosts, in three queries for any number."""
    members = Prefetch("members", Member.objects.select_related("host"))
    attempts = Prefetch("task__allocations", Allocation.objects.prefetch_related(members))
    rows = Command.objects.select_related("owner", "job__pool", "task", "service").prefetch_related(attempts)
    return rows.annotate(**phases.beside(Q(task=OuterRef("task_id"))))
