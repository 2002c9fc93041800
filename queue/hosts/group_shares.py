"""What a pool gives groups of people: its rule, checked against the groups and slots that are there."""

from __future__ import annotations

from typing import Any

from django.db.models import Count

from accounts.models import Group
from accounts.refusals import Code, Refusal
from hosts import registry
from hosts.models import ResourcePool, Slot
from hosts.pools import mark_dirty

_EXAMPLE = 'such as {"vision": {"guarantee": 8, "limit": 12, "weight": 2}}'
_MOST_SLOTS = 2**31 - 1


def fault(value: object) -> str | None:
    """What is wrong with a value, whatever the pool."""
    if not isinstance(value, dict) or not all(isinstance(share, dict) for share in value.values()):
        return f"allowed: what each group gets, {_EXAMPLE}"
    for name, share in value.items():
        if unknown := share.keys() - {"guarantee", "limit", "weight"}:
            return f"allowed for group {name}: guarantee, limit and weight, not {min(unknown)}"
        for word in ("guarantee", "limit"):
            if share.get(word) is not None and not _is_whole(share[word]):
                return f"the {word} of group {name} must be a whole number of slots, 0 or more"
        weight = share.get("weight", 1)
        if isinstance(weight, bool) or not isinstance(weight, int | float) or not 0 < weight <= 1000:
            return f"the weight of group {name} must be a number above 0, at most 1000"
        if share.get("limit") is not None and share["limit"] < (share.get("guarantee") or 0):
            return f"the limit of group {name} is below its guarantee"
    known = set(Group.objects.filter(name__in=value).values_list("name", flat=True))
    missing = sorted(value.keys() - known)
    return f"there is no group {missing[0]}" if missing else None


def contradiction(pool: ResourcePool, shares: dict[str, Any], spare_hosts: int) -> str:
    """What the guarantees have against each other or against the pool; empty if nothing.

    Slots of spares are guaranteed to nobody. The largest hosts count as the spares, since any host may become one.
    """
    parents = dict(Group.objects.filter(name__in=shares).values_list("name", "parent__name"))
    given = {name: share.get("guarantee") or 0 for name, share in shares.items()}
    of_teams: dict[str, int] = {}
    for name, guarantee in given.items():
        if parent := parents[name]:
            of_teams[parent] = of_teams.get(parent, 0) + guarantee
    for parent, slots in of_teams.items():
        if given.get(parent) and slots > given[parent]:
            return f"The teams of {parent} are guaranteed {slots} slots, more than its own {given[parent]}."
        if (limit := shares.get(parent, {}).get("limit")) is not None and slots > limit:
            return f"The teams of {parent} are guaranteed {slots} slots, more than its limit of {limit}."
    tops = {name: slots for name, slots in given.items() if not parents[name]}
    total = sum(max(slots, of_teams.get(name, 0)) for name, slots in tops.items())
    total += sum(slots for parent, slots in of_teams.items() if parent not in tops)
    present = registry.present_slots().filter(host__pool=pool) if pool.pk else Slot.objects.none()
    sizes = sorted(
        present.order_by().values("host").annotate(size=Count("pk")).values_list("size", flat=True)
    )
    kept = sum(sizes[len(sizes) - spare_hosts :]) if spare_hosts else 0
    has = sum(sizes) - kept
    if total > has:
        beside = f" beside the {kept} of its spare hosts" if kept else ""
        fewer = ", keep fewer spares" if kept else ""
        return (
            f"The groups are guaranteed {total} slots; the pool has {has}{beside}. "
            f"Add hosts first{fewer}, or guarantee less."
        )
    return ""


def group_changed(was: str, now: str, **_: object) -> None:
    """The rules of pools follow a new name; a group that they name is not deleted. Raises Refusal."""
    for pool in ResourcePool.objects.select_for_update(no_key=True).exclude(group_shares={}):
        if was in pool.group_shares and not now:
            raise Refusal(
                f"Group {was} cannot be deleted: pool {pool.name} gives it a share. Remove that first.",
                Code.CONFLICT,
            )
        if was in pool.group_shares and was != now:
            pool.group_shares[now] = pool.group_shares.pop(was)
            pool.save(update_fields=["group_shares"])
        mark_dirty(pool.pk)


def _is_whole(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= _MOST_SLOTS
