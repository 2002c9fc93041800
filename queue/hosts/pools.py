"""Pools by name, and the mark that tells the scheduler to look."""

from __future__ import annotations

from events.announce import announce, wake
from hosts.models import PoolChange, ResourcePool

DEFAULT_POOL = "default"


def default_pool() -> ResourcePool:
    """The default compute pool; made on first use. Its plan, which may be megabytes, is read only when asked for."""
    pool = ResourcePool.objects.filter(default_compute=True).first()
    if pool:
        return pool
    return ResourcePool.objects.get_or_create(
        name=DEFAULT_POOL, defaults={"default_compute": True, "default_aux": True}
    )[0]


def default_pool_for(slots: int) -> ResourcePool:
    """The pool of work that names none: the default aux pool for zero slots, the default compute pool for others."""
    aux = ResourcePool.objects.filter(default_aux=True).first() if slots == 0 else None
    return aux or default_pool()


def mark_dirty(pool_id: int) -> None:
    """Something a pass should see has changed: note it in this transaction and wake the tick after commit."""
    PoolChange.objects.create(pool_id=pool_id)
    announce(f"pool:{pool_id}")
    wake("dispatch.tasks.tick", pool_id)
