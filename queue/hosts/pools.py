"""Pools by name, and the mark that tells the scheduler to look."""

from __future__ import annotations

from events.announce import announce, wake
from hosts.models import PoolChange, ResourcePool

DEFAULT_POOL = "default"


def default_pool() -> ResourcePool:
    """The pool of jobs that name none; made on first use."""
    pool = ResourcePool.objects.filter(default_compute=True).first()
    if pool:
        return pool
    return ResourcePool.objects.get_or_create(
        name=DEFAULT_POOL, defaults={"default_compute": True, "default_aux": True}
    )[0]


def mark_dirty(pool_id: int) -> None:
    """Something a pass should see has changed: note it in this transaction and wake the tick after commit."""
    PoolChange.objects.create(pool_id=pool_id)
    announce(f"pool:{pool_id}")
    wake("dispatch.tasks.tick", pool_id)
