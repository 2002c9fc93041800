"""What every submission must pass before it is a job: its pool, its priority, its time limit, and being new."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from functools import wraps
from typing import Any, ParamSpec, TypeVar

from django.conf import settings
from django.db import IntegrityError, transaction
from django.db.models import Model, Sum
from django.db.models.functions import Coalesce
from django.utils import timezone

from accounts.models import User
from accounts.refusals import Code, Refusal, Together
from hosts import pool_access
from hosts.login_accounts import refuse_as_login
from hosts.models import ResourcePool
from hosts.pools import default_pool_for, named
from hosts.slurm.settings import section_fault
from jobs import deadlines, time_limits
from jobs.capacity import refuse_uneven, refuse_what_never_fits
from jobs.models import Job
from jobs.queue_rules import floor_error
from jobs.states import JobState

Made = TypeVar("Made", bound=Model)
Given = ParamSpec("Given")


def pool_for(name: str, slots: int = 1) -> ResourcePool:
    """The pool that a config names, or the default one for so many slots. Raises Refusal."""
    if not name:
        return default_pool_for(slots)
    pool = named(name)
    if pool is None:
        known = ", ".join(ResourcePool.objects.values_list("name", flat=True)) or "none"
        raise Refusal(f"resource pool {name} does not exist; the pools are: {known}.", field="pool")
    return pool


def settle(
    resources: dict[str, Any],
    slots: int,
    *,
    owner: User,
    role: str,
    workspace: int | None = None,
    single_host: bool = False,
    slurm: object = None,
    by_server: bool = False,
) -> ResourcePool:
    """The pool of a submission; its name and the time limit of each task are written into `resources`.

    `resources` is the section of an effective config, `slots` what one task asks, `role` that of whoever submits.
    `workspace`: its number, None where it is not known yet. `single_host`: a task runs on one host, whether the config
    says so or not. `slurm`: that section of its config. `by_server`: it is nobody's, so whom the pool is for does not
    count.
    Raises Refusal.
    """
    pool, limit = pool_for(resources.get("resource_pool") or "", slots), None
    asked = resources.get("priority")
    with Together() as faults:
        with faults.step():
            if not by_server:
                pool_access.refuse_others(pool, owner, workspace)
        with faults.step():
            refuse_as_login(pool, owner.unix_user)
        if asked is not None and (error := floor_error(pool, role, asked)):
            faults.refused.append(Refusal(error, field="priority"))
        if pool.slurm and slurm and (wrong := section_fault(slurm)):
            faults.refused.append(Refusal(f"slurm: {wrong}.", field="slurm"))
        with faults.step():
            limit = time_limits.seconds_for(pool, resources.get("max_time"))
            deadlines.refuse(pool, resources, slots, timezone.now())
        with faults.step():
            refuse_what_never_fits(
                pool,
                slots,
                single_host=single_host or bool(resources.get("is_single_node")),
                only_hosts=resources.get("hosts") or (),
            )
        with faults.step():
            refuse_uneven(pool, slots, slurm)
    resources.update(resource_pool=pool.name, max_time=limit)
    return pool


def refuse_unknown_pool(config: dict[str, Any]) -> None:
    """Look up the pool that a config names which cannot be used for other reasons. Raises Refusal."""
    resources = config.get("resources")
    name = resources.get("resource_pool") if isinstance(resources, dict) else None
    if isinstance(name, str):
        pool_for(name)


def refuse_too_many(owner: User, elements: int = 1) -> None:
    """Before a job is made: nobody's fill the queue, or keep the server from everybody else's. Raises Refusal.

    `elements`: those of an array, each of which counts.
    """
    jobs, minute_ago = Job.objects.filter(owner=owner), timezone.now() - timedelta(minutes=1)
    counted = jobs.exclude(state=JobState.ENDED).aggregate(jobs=Sum(Coalesce("elements", 1)))
    unfinished = counted["jobs"] or 0
    if unfinished + elements > settings.UNFINISHED_JOBS_PER_USER:
        more = "" if elements == 1 else f", and this array has {elements:,} more"
        raise Refusal(
            f"{owner.username} has {unfinished:,} jobs that have not ended{more}; allowed: at most "
            f"{settings.UNFINISHED_JOBS_PER_USER:,}. Wait for some to end, or cancel some.",
            Code.CONFLICT,
        )
    lately = jobs.filter(submitted_at__gt=minute_ago).count()
    if lately >= settings.SUBMISSIONS_PER_MINUTE:
        raise Refusal(
            f"{owner.username} has submitted {lately:,} jobs within a minute; allowed: at most "
            f"{settings.SUBMISSIONS_PER_MINUTE:,}. Submit the next ones in a minute.",
            Code.TOO_MANY,
        )


def once(model: type[Made]) -> Callable[[Callable[Given, Made]], Callable[Given, Made]]:
    """Decorate what makes a row, given its `idempotency_key`: in one transaction, and with a repeated key not again.

    Then the first row of that key is returned.
    """

    def decorate(make: Callable[Given, Made]) -> Callable[Given, Made]:
        @wraps(make)
        def made(*args: Given.args, **given: Given.kwargs) -> Made:
            key = given["idempotency_key"]
            earlier = model._default_manager.filter(idempotency_key=key)
            if key and (before := earlier.first()):
                return before
            try:
                with transaction.atomic():
                    return make(*args, **given)
            except IntegrityError:
                if key and (meanwhile := earlier.first()):
                    return meanwhile
                raise

        return made

    return decorate
