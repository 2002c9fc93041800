"""Pools by name, and the mark that tells the scheduler to look."""

from __future__ import annotations

from django.db import connection

from accounts.refusals import Refusal
from events.announce import announce, is_first, wake
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


def named(name: str) -> ResourcePool | None:
    """The pool of this name. The first pool of all, the default one, is made when it is named."""
    pool = ResourcePool.objects.filter(name=name).first()
    if pool is None and name == DEFAULT_POOL and not ResourcePool.objects.exists():
        return default_pool()
    return pool


def default_pool_for(slots: int) -> ResourcePool:
    """The pool of work that names none: the default aux pool for zero slots, the default compute pool for others."""
    aux = ResourcePool.objects.filter(default_aux=True).first() if slots == 0 else None
    return aux or default_pool()


def hold(pool: ResourcePool) -> None:
    """Before something is put into the pool: it stays until this transaction ends. Raises Refusal.

    FOR KEY SHARE is what the foreign key takes as well, and like it lets others put something in and passes write
    their plan. It waits for a removal that is under way and, unlike the foreign key, sees that the pool is only hidden.
    """
    with connection.cursor() as cursor:
        cursor.execute(
            f"SELECT 1 FROM {ResourcePool._meta.db_table} WHERE id = %s AND NOT removed FOR KEY SHARE",
            [pool.pk],
        )
        if cursor.fetchone() is None:
            raise Refusal(f"resource pool {pool.name} has been removed; choose another one.", field="pool")


_MARK = f"INSERT INTO {PoolChange._meta.db_table} (pool_id) VALUES (%s)"


def mark_dirty(pool_id: int) -> None:
    """Something a pass should see has changed: note it in this transaction, once, and wake the tick after commit."""
    if is_first((_MARK, pool_id)):  # the end of a run comes by here five times
        with connection.cursor() as cursor:  # an insert of Django's costs several times as much
            cursor.execute(_MARK, [pool_id])
    announce(f"pool:{pool_id}")
    wake("dispatch.tasks.tick", pool_id)
