"""The plan of a pool's last pass, read once per pass and process: with 10,000 waiting jobs it is megabytes long."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from functools import cached_property
from typing import Any

from hosts.models import ResourcePool
from scheduling.reasons import NEVER


@dataclass(frozen=True)
class Plan:
    """What `plans` stored. `waits`: task id -> reason record; `forecast`: task id -> epoch seconds."""

    planned_at: datetime | None = None
    took_ms: float | None = None
    waits: dict[str, dict[str, Any]] = field(default_factory=dict)
    forecast: dict[str, list[float]] = field(default_factory=dict)
    #: task id -> why there is no forecast
    unknown: dict[str, str] = field(default_factory=dict)
    #: job id -> slots that it is entitled to, in a fair-share pool
    shares: dict[str, float] = field(default_factory=dict)

    @cached_property
    def never(self) -> list[str]:
        """The tasks that no waiting will start."""
        return [task_id for task_id, wait in self.waits.items() if wait.get("code") in NEVER]


_latest: dict[int, Plan] = {}


def of(pool: ResourcePool) -> Plan:
    """The plan as of `pool.planned_at`, or a newer one."""
    known = _latest.get(pool.pk)
    if known is not None and pool.planned_at is not None and known.planned_at == pool.planned_at:
        return known
    pools = ResourcePool.with_removed  # what has ended in a removed pool is still shown
    document, planned_at = pools.values_list("kept__document", "planned_at").get(pk=pool.pk)
    document = document or {}
    plan = Plan(
        planned_at=planned_at,
        took_ms=document.get("took_ms"),
        waits=document.get("waits") or {},
        forecast={task: span for task, span in (document.get("forecast") or {}).items() if span},
        unknown=document.get("unknown") or {},
        shares=document.get("shares") or {},
    )
    _latest[pool.pk] = plan
    return plan
