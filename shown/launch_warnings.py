"""What a submission should know at once: that its slots cannot be had as the pool stands now."""

from __future__ import annotations

from hosts.models import ResourcePool
from jobs import capacity
from jobs.models import Task

EXCEEDED = "LAUNCH_WARNING_CURRENT_SLOTS_EXCEEDED"


def warnings_for(pool: ResourcePool, task: Task | None) -> tuple[list[str], list[str]]:
    """Determined's warning, which its client knows, and the sentence that says why. `task`: the job's first."""
    reason = capacity.never_of(pool, task) if task else None
    return ([EXCEEDED], [f"It stays queued: {reason.sentence}."]) if reason else ([], [])
