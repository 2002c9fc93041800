"""What a submission should know at once: that its slots cannot be had as the pool stands now."""

from __future__ import annotations

from django.db.models import Count
from django.utils import timezone

from dispatch.passes import survey
from hosts.models import Host, ResourcePool
from jobs.models import Task
from scheduling.fitting import Shape
from scheduling.prospects import Prospects
from scheduling.world import Request

EXCEEDED = "LAUNCH_WARNING_CURRENT_SLOTS_EXCEEDED"
_IN_SERVICE = [Host.Admission.READY, Host.Admission.SUSPENDED]


def warnings_for(pool: ResourcePool, task: Task | None) -> tuple[list[str], list[str]]:
    """Determined's warning, which its client knows, and the sentence that says why. `task`: the job's first."""
    if task is None or _one_host_would_do(pool, task.slots):
        return [], []
    request = Request(
        task_id=task.pk, job_id=str(task.job_id), label="", slots=task.slots, single_host=task.single_host
    )
    snapshot = survey.take(pool, timezone.now())
    shape = Shape.of(request, pool.allow_heterogeneous_fits)
    reason = Prospects(snapshot).never(shape, request.slots)
    if reason is None:
        return [], []
    return [EXCEEDED], [f"It stays queued: {reason.sentence}."]


def _one_host_would_do(pool: ResourcePool, slots: int) -> bool:
    """The usual case, without a look at the whole pool."""
    hosts = Host.objects.filter(pool=pool, admission__in=_IN_SERVICE)
    return hosts.annotate(size=Count("slots")).filter(size__gte=slots).exists()
