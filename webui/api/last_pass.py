"""What the last pass told of some tasks: of the plan as the pages keep it, read once per pass and process."""

from __future__ import annotations

from collections.abc import Sequence

from dispatch.passes import last_plan
from hosts.models import ResourcePool
from webui.api.views import Json


def told(pool: ResourcePool, task_ids: Sequence[str]) -> dict[str, Json]:
    """Task id -> {"reason": {…}, "forecast": [earliest, latest], "unknown": why there is no forecast}, each or None."""
    plan = last_plan.of(pool)
    return {
        task_id: {
            "reason": plan.waits.get(task_id),
            "forecast": plan.forecast.get(task_id),
            "unknown": plan.unknown.get(task_id),
        }
        for task_id in task_ids
    }
