"""What an edit of the queue may not be: one sentence for each, the same on page, command line and REST."""

from __future__ import annotations

import sys
import uuid
from typing import Any

from accounts import rights
from accounts.refusals import Code, Refusal
from hosts.login_accounts import unix_user
from hosts.models import ResourcePool
from jobs.models import Job

_SHORT = 8
_MOST_SLOTS = 2**31 - 1  # of the database's integers


def short(job_id: uuid.UUID) -> str:
    """A job's id as people see it."""
    return str(job_id)[:_SHORT]


def priority_error(priority: Any) -> str | None:
    """The one sentence about priorities."""
    if _is_whole(priority) and 1 <= priority <= 99:
        return None
    return f"priority must be between 1 and 99; 1 is the highest. Found: {priority}."


def weight_error(weight: Any) -> str | None:
    """The one sentence about weights."""
    if _is_number(weight) and 0 < weight <= sys.float_info.max:
        return None
    return f"weight must be greater than 0. Found: {weight}."


def position_error(position: Any, last: int) -> str | None:
    """The one sentence about places; `last` is the number of places in the queue."""
    if _is_whole(position) and 1 <= position <= last:
        return None
    return f"position must be a whole number between 1 and {last}; 1 is the first. Found: {position}."


def max_slots_error(max_slots: Any) -> str | None:
    """The one sentence about limits of slots at once; None is no limit."""
    if max_slots is None or (_is_whole(max_slots) and 0 <= max_slots <= _MOST_SLOTS):
        return None
    allowed = f"a whole number between 0 and {_MOST_SLOTS}, or none (in JSON null) for no limit"
    return f"max_slots must be {allowed}. Found: {max_slots}."


def _is_whole(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def refuse_viewer(actor: str, role: str) -> None:
    """Viewers read."""
    if role == "viewer":
        raise rights.viewer(actor.partition(":")[2])


def refuse_strict(job: Job, actor: str, role: str) -> None:
    """Admins change every job, editors their own, and those of others where the pool is not strict."""
    owner = job.owner.username
    if job.pool.strict and role != "admin" and actor != f"user:{owner}":
        raise Refusal(
            f"job {short(job.pk)} belongs to {owner} and resource pool {job.pool.name} is strict; "
            "only its owner or an admin can change it",
            Code.FORBIDDEN,
        )


def refuse_lost_account(job: Job, pool: ResourcePool, actor: str, role: str) -> None:
    """Only its owner and admins move a job from its owner's account into one that it would share with others."""
    owner = job.owner
    is_own = role == "admin" or actor == f"user:{owner.username}"
    if not owner.unix_user and pool.allow_login_account and not job.pool.allow_login_account and not is_own:
        raise Refusal(
            f"{owner.username}, the owner of job {short(job.pk)}, has no linked account; in resource pool "
            f"{pool.name} its code and its token would lie under the login account (--allow-login-account), so only "
            f"{owner.username} or an admin can move it there",
            Code.FORBIDDEN,
            field="pool",
        )
    if unix_user(job.pool, owner.unix_user) == unix_user(pool, owner.unix_user):
        return
    if unix_user(pool, owner.unix_user) is None and not is_own:
        raise Refusal(
            f"job {short(job.pk)} runs as {owner.unix_user}, the account of {owner.username}; in resource pool "
            f"{pool.name} its code and its token would lie under an account that all jobs share, so only "
            f"{owner.username} or an admin can move it there",
            Code.FORBIDDEN,
            field="pool",
        )


def floor(pool: ResourcePool, role: str) -> int:
    """The highest priority (lowest number) that a role may give in this pool."""
    return int(pool.priority_floor.get(role, 1))


def floor_error(pool: ResourcePool, role: str, priority: int) -> str | None:
    """The one sentence about priorities that a role may not give here."""
    most = floor(pool, role)
    if "priority" not in pool.policy.knobs or priority >= most:
        return None
    article = "an" if role[:1] in "aeiou" else "a"
    return f"{article} {role} cannot set a priority higher than {most} in resource pool {pool.name}. Found: {priority}."


def need_knob(job: Job, knob: str) -> None:
    """A priority has a meaning in some pools, a weight in others."""
    policy = job.pool.policy
    if knob in policy.knobs:
        return
    instead = f"; set {policy.knobs[0]}" if policy.knobs else ""
    raise Refusal(
        f"{knob} has no effect in resource pool {job.pool.name}, whose scheduler is {policy.name}{instead}",
        field=knob,
    )


def need_order(job: Job) -> None:
    """Jobs move only where their order is by position."""
    if "position" not in job.pool.policy.knobs:
        raise Refusal(
            f"unable to perform operation on resource pool with {job.pool.scheduler}: its jobs have no positions",
            field="position",
        )
