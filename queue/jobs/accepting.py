"""What every submission must pass before it is a job: its pool, its priority, its time limit, and being new."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from django.db import IntegrityError
from django.db.models import Model

from accounts.refusals import Refusal
from hosts.models import ResourcePool
from hosts.pools import default_pool_for
from jobs import time_limits
from jobs.queue_rules import floor_error

Made = TypeVar("Made", bound=Model)


def pool_for(name: str, slots: int = 1) -> ResourcePool:
    """The pool that a config names, or the default one for so many slots. Raises Refusal."""
    if not name:
        return default_pool_for(slots)
    pool = ResourcePool.objects.filter(name=name).first()
    if pool is None:
        known = ", ".join(ResourcePool.objects.values_list("name", flat=True)) or "none"
        raise Refusal(f"resource pool {name} does not exist; the pools are: {known}.", field="pool")
    return pool


def settle(resources: dict[str, Any], slots: int, *, role: str) -> ResourcePool:
    """The pool of a submission; its name and the time limit of each task are written into `resources`.

    `resources` is the section of an effective config, `slots` what one task asks. Raises Refusal.
    """
    pool = pool_for(resources.get("resource_pool") or "", slots)
    asked = resources.get("priority")
    if asked is not None and (error := floor_error(pool, role, asked)):
        raise Refusal(error, field="priority")
    limit = time_limits.seconds_for(pool, resources.get("max_time"))
    resources.update(resource_pool=pool.name, max_time=limit)
    return pool


def once(model: type[Made], idempotency_key: str | None, make: Callable[[], Made]) -> Made:
    """What `make` makes with the key, all in one transaction; with a repeated key the first one of all.

    Raises Refusal where the pool was removed since it was chosen.
    """

    def first() -> Made | None:
        return model._default_manager.filter(idempotency_key=idempotency_key).first()

    if idempotency_key and (before := first()):
        return before
    try:
        return make()
    except IntegrityError:
        if idempotency_key and (meanwhile := first()):
            return meanwhile
        raise
