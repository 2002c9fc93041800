"""Fairness as numbers on pages: who holds what of a pool, and what of it is yours."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from django import template

from accounts.models import User
from hosts.models import ResourcePool
from jobs import shares
from shown import pools

register = template.Library()
#: jobs in the table of a pool; the others wait
MOST_JOBS = 50


@dataclass(frozen=True)
class ShareLine:
    """Who holds so much, and which part of the pool that is."""

    of: shares.OfUser | shares.OfJob
    percent: int


@register.inclusion_tag("fragments/pool_shares.html", takes_context=True)
def pool_shares(context: dict[str, Any], pool: ResourcePool, slots: int) -> dict[str, Any]:
    """The users of the pool with what they hold of its `slots`, want and are entitled to, and the jobs below."""
    entitled = pools.entitled(pool)
    total, jobs = shares.by_job(pool, entitled, 0, MOST_JOBS)
    return {
        "request": context["request"],
        "pool": pool,
        "fair": entitled is not None,
        "users": [_line(each, slots) for each in shares.by_user(pool, entitled)],
        "jobs": [_line(each, slots) for each in jobs],
        "more": total - len(jobs),
    }


def _line(each: shares.OfUser | shares.OfJob, slots: int) -> ShareLine:
    return ShareLine(each, round(100 * each.held / slots) if slots else 0)


@register.simple_tag
def your_share(pool: ResourcePool, user: User, slots: int) -> str:
    """`You hold 6 of 8 slots; your fair share is 4.`; nothing for who neither holds nor wants any."""
    mine = shares.of_user(pool, user, pools.entitled(pool))
    if not (mine.held or mine.waiting or mine.entitled):
        return ""
    waits = f"wait for {mine.waiting:,} more" if mine.waiting else ""
    held = f"You hold {mine.held:,} of {slots:,} slots"
    if mine.entitled is None:
        return f"{held} and {waits}." if waits else f"{held}."
    return f"{held}; your fair share is {mine.entitled:g}{f', and you {waits}' if waits else ''}."
