"""What groups hold of pools: what is guaranteed, borrowed, lent to others, and waited for."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

from accounts.models import Group
from hosts.models import ResourcePool
from jobs import shares
from scheduling.group_shares import guarantees
from scheduling.world import GroupShare


@dataclass(frozen=True)
class GroupRow:
    """One group in one pool, in slots. `lent`: of its guarantee, what it does not use and others have borrowed.

    A department counts with its teams.
    """

    pool: str
    group: str
    parent: str
    guaranteed: int
    limit: int | None
    weight: float
    held: int
    borrowed: int
    lent: int
    waiting: int


def of_pool(pool: ResourcePool) -> list[GroupRow]:
    """The groups that have a share of the pool, or whose members hold or want slots; a department before its teams."""
    if not pool.group_shares:
        return []
    held, waiting = Counter[str](), Counter[str]()
    groups = {group.pk: group for group in Group.objects.select_related("parent")}
    for each in shares.by_user(pool, None):
        group = groups.get(each.user.group_id or 0)
        for name in group.path if group else ("",):
            held[name] += each.held
            waiting[name] += each.waiting
    given = {
        group.name: GroupShare(
            guarantee=(rule := pool.group_shares.get(group.name, {})).get("guarantee") or 0,
            limit=rule.get("limit"),
            weight=rule.get("weight") or 1.0,
            parent=group.parent.name if group.parent else "",
        )
        for group in groups.values()
    }
    guaranteed = guarantees(given)
    over = {name: max(0, held[name] - guaranteed.get(name, 0)) for name in {*given, ""}}
    rows = []
    for group in sorted(groups.values(), key=lambda group: group.path):
        name, share = group.name, given[group.name]
        if name not in pool.group_shares and not (held[name] or waiting[name] or guaranteed[name]):
            continue
        unused = max(0, guaranteed[name] - held[name])
        others = sum(over[other] for other in _beside(name, given))
        rows.append(
            GroupRow(
                pool.name, name, share.parent, guaranteed[name], share.limit, share.weight, held[name], over[name],
                min(unused, others), waiting[name],
            )
        )  # fmt: skip
    return rows


def _beside(name: str, given: dict[str, GroupShare]) -> Iterable[str]:
    """Those that borrow what a group does not use: other groups of its level; for a team, other departments too."""
    parent = given[name].parent
    yield from (
        other
        for other, share in given.items()
        if other not in (name, parent) and share.parent in ("", parent)
    )
    yield ""


def of_group(group: Group) -> list[GroupRow]:
    """The group in each pool that shares its slots among groups."""
    pools = ResourcePool.objects.exclude(group_shares={}).order_by("name")
    return [row for pool in pools for row in of_pool(pool) if row.group == group.name]
