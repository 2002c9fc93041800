"""The groups of a pool as a pass sees them: who belongs to which, what the pool gives each, what it has held lately."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta

from django.conf import settings

from accounts.models import Group, User
from hosts.models import ResourcePool
from jobs import past_use
from scheduling.group_shares import shared
from scheduling.world import GroupShare


def paths() -> dict[int, tuple[str, ...]]:
    """User -> their group, after its department."""
    rows = User.objects.filter(group__isnull=False).values_list("pk", "group__parent__name", "group__name")
    return {pk: shared((parent, name) if parent else (name,)) for pk, parent, name in rows}


def shares(pool: ResourcePool, groups: Mapping[int, tuple[str, ...]], now: float) -> dict[str, GroupShare]:
    """Every group that the pool names, or whose members have held slots; empty, and groups count for nothing here."""
    if not pool.group_shares:
        return {}
    held: dict[str, float] = defaultdict(float)
    for user_id, slots in _averages(pool, now).items():
        for name in groups.get(user_id, ()):
            held[name] += slots
    parents = dict(Group.objects.values_list("name", "parent__name"))
    return {
        name: GroupShare(
            guarantee=(given := pool.group_shares.get(name, {})).get("guarantee") or 0,
            limit=given.get("limit"),
            weight=given.get("weight") or 1.0,
            parent=parent or "",
            usage=round(held[name], 3),
        )
        for name, parent in parents.items()
        if name in pool.group_shares or held[name]
    }


#: what this process read last, by pool: when, by its monotonic clock, and with which half-life
_kept: dict[int, tuple[float, int, dict[int, float]]] = {}


def _averages(pool: ResourcePool, now: float) -> dict[int, float]:
    """Read at most once in FORECAST_HISTORY_SECONDS: what was held lately changes slowly."""
    seconds = pool.usage_half_life_seconds
    if not seconds:
        return {}
    known = _kept.get(pool.pk)
    if (
        known is None
        or known[1] != seconds
        or time.monotonic() - known[0] > settings.FORECAST_HISTORY_SECONDS
    ):
        found = past_use.averages(pool.pk, timedelta(seconds=seconds), datetime.fromtimestamp(now, UTC))
        _kept[pool.pk] = known = (time.monotonic(), seconds, found)
    return known[2]
