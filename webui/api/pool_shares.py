"""Fairness as numbers: what each user and job of a pool holds, waits for and is entitled to."""

from __future__ import annotations

from rest_framework.request import Request

from accounts.rights import Right
from hosts import registry
from jobs import group_rows, shares
from jobs.shares import OfJob
from shown import pools, reservations
from webui.api import encoding
from webui.api.answers import Answer, Maybe, Pagination, Time
from webui.api.job_queue import pool_named
from webui.api.views import ApiView


class UserShareRecord(Answer):
    """In slots; `entitled` only in fair-share pools."""

    username: str
    user_id: int
    held: int
    waiting: int
    entitled: Maybe[float] = None


class JobShareRecord(Answer):
    """In slots; `entitled` only in fair-share pools."""

    job_id: str
    name: str
    username: str
    weight: float
    max_slots: Maybe[int] = None
    held: int
    waiting: int
    entitled: Maybe[float] = None


class GroupInPool(Answer):
    """In slots. `borrowed`: held beyond the guarantee. `lent`: guaranteed and unused, and held by others."""

    group: str
    parent: str
    guaranteed: int
    limit: int | None
    weight: float
    held: int
    borrowed: int
    lent: int
    waiting: int


class ReservationRecord(Answer):
    """Hosts reserved for a gang. `idleHours`: slot-hours idle there so far. `keepsFrom`: tasks that wait for it."""

    task_id: str
    job_id: str
    label: str
    hosts: list[str]
    since: Time
    free: int
    idle_hours: float
    keeps_from: int


class PoolSharesAnswer(Answer):
    resource_pool: str
    scheduler_type: str
    slots: int
    held: int
    plan_time: Maybe[Time] = None
    users: list[UserShareRecord]
    groups: list[GroupInPool]
    reservations: list[ReservationRecord]
    jobs: list[JobShareRecord]
    pagination: Pagination


class PoolShares(ApiView):
    """All users of the pool that hold or want slots, and its jobs in pages; `entitled` only in fair-share pools.

    In slots; `entitled` is as of the last pass, at `planTime`.
    """

    rights = {"GET": Right.READ}
    queries = {"GET": encoding.PageQuery}

    def get(self, request: Request, name: str) -> PoolSharesAnswer:
        query = self.query(request)
        pool = pool_named(name)
        entitled = pools.entitled(pool)
        first = query["offset"]
        total, jobs = shares.by_job(pool, entitled, first, first + encoding.rows_asked(query))
        users = shares.by_user(pool, entitled)
        slots = registry.present_slots().filter(host__pool=pool).count()
        return PoolSharesAnswer(
            resource_pool=pool.name,
            scheduler_type=pool.policy.dialect,
            slots=slots,
            held=sum(user.held for user in users),
            plan_time=pool.planned_at,
            users=[
                UserShareRecord.of(each, username=each.user.username, user_id=each.user.pk) for each in users
            ],
            groups=[GroupInPool.of(each) for each in group_rows.of_pool(pool)],
            reservations=[ReservationRecord.of(each) for each in reservations.of_pool(pool)],
            jobs=[_job(job) for job in jobs],
            pagination=encoding.pagination(query, total),
        )


def _job(each: OfJob) -> JobShareRecord:
    job = each.job
    return JobShareRecord.of(
        each,
        job_id=str(job.pk),
        name=job.name,
        username=job.owner.username,
        weight=job.weight,
        max_slots=job.max_slots or None,
    )
