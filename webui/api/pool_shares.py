"""Fairness as numbers: what each user and job of a pool holds, waits for and is entitled to."""

from __future__ import annotations

from typing import NotRequired

from rest_framework.request import Request
from rest_framework.response import Response
from typing_extensions import TypedDict

from hosts import registry
from hosts.models import Slot
from jobs import shares
from jobs.shares import OfJob, OfUser
from webui.api import encoding
from webui.api.answers import Pagination, Time
from webui.api.job_queue import pool_named
from webui.api.views import ApiView, Json


class UserShareRecord(TypedDict):
    """In slots; `entitled` in fair-share pools only."""

    username: str
    userId: int
    held: int
    waiting: int
    entitled: NotRequired[float]


class JobShareRecord(TypedDict):
    """In slots; `entitled` in fair-share pools only."""

    jobId: str
    name: str
    username: str
    weight: float
    maxSlots: NotRequired[int]
    held: int
    waiting: int
    entitled: NotRequired[float]


class PoolSharesAnswer(TypedDict):
    resourcePool: str
    schedulerType: str
    slots: int
    held: int
    planTime: NotRequired[Time]
    users: list[UserShareRecord]
    jobs: list[JobShareRecord]
    pagination: Pagination


class PoolShares(ApiView):
    """All users of the pool that hold or want slots, and its jobs page by page; `entitled` in fair-share pools only.

    In slots; what jobs are entitled to is as of the last pass, at `planTime`.
    """

    queries = {"GET": encoding.PageQuery}
    answers = {"GET": PoolSharesAnswer}

    def get(self, request: Request, name: str) -> Response:
        query = self.query(request)
        pool = pool_named(name)
        entitled = shares.entitled(pool)
        first = query["offset"]
        total, jobs = shares.by_job(pool, entitled, first, first + encoding.rows_asked(query))
        users = shares.by_user(pool, entitled)
        slots = Slot.objects.filter(host__in=registry.present().filter(pool=pool), missing=False).count()
        answer = {
            "resourcePool": pool.name,
            "schedulerType": pool.policy.dialect,
            "slots": slots,
            "held": sum(user.held for user in users),
            "planTime": encoding.time(pool.planned_at),
            "users": [_user(user) for user in users],
            "jobs": [_job(job) for job in jobs],
            "pagination": encoding.pagination(query, total),
        }
        return Response(encoding.without_none(answer))


def _user(each: OfUser) -> Json:
    return {"username": each.user.username, "userId": each.user.pk, **_slots(each)}


def _job(each: OfJob) -> Json:
    job = each.job
    return {
        "jobId": str(job.pk),
        "name": job.name,
        "username": job.owner.username,
        "weight": job.weight,
        **({"maxSlots": job.max_slots} if job.max_slots else {}),
        **_slots(each),
    }


def _slots(each: OfUser | OfJob) -> Json:
    found = {"held": each.held, "waiting": each.waiting, "entitled": each.entitled}
    return encoding.without_none(found)
