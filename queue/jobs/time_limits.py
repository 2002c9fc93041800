"""How long a task may run: what its config asks for, within what its pool allows.

The limit is of the time that the task runs, over all its attempts; waiting does not count. So work that is stopped for
others and goes on later gets what its owner asked for, and work that fails and starts again does not run for ever.
"""

from __future__ import annotations

from collections.abc import Collection

from django.db.models import F, Sum
from django.db.models.functions import Coalesce

from accounts.refusals import Refusal
from hosts.models import ResourcePool
from jobs.models import Allocation
from jobs.states import AllocationState


def seconds_for(pool: ResourcePool, asked: int | None) -> int | None:
    """The limit of a new task in seconds; None: as long as it likes. Raises Refusal."""
    longest = pool.longest_max_time_seconds
    if asked is not None and longest is not None and asked > longest:
        raise Refusal(
            f"resources.max_time: found {asked} s, allowed: at most {longest} s in resource pool {pool.name}.",
            field="max_time",
        )
    limits = [limit for limit in (pool.default_max_time_seconds, longest) if limit is not None]
    return asked if asked is not None else min(limits, default=None)


def time_used(task_ids: Collection[str]) -> dict[str, float]:
    """Seconds that the attempts which are over have run, by task; tasks without any are left out."""
    if not task_ids:
        return {}
    over = Allocation.objects.filter(task_id__in=task_ids, state=AllocationState.TERMINATED)
    rows = over.exclude(started_at=None).values_list("task_id")
    return {
        task_id: used.total_seconds()
        for task_id, used in rows.annotate(used=Sum(Coalesce("ended_at", "started_at") - F("started_at")))
    }
