"""Who used how much: slot-hours by user, group, pool or label."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from dispatch.keeping.usage import UsageSum

_HOUR_SECONDS = 3600
_NO_LABEL = "no label"
_TOTAL = "all slots"


@dataclass(frozen=True)
class UsageLine:
    """One user, pool or label with its slot-hours, in all and of each period."""

    name: str
    hours: float
    by_period: list[float]
    percent: float


def lines(group: str, sums: Sequence[UsageSum]) -> list[UsageLine]:
    """Who used how much, the most first. `group`: user, group, pool, label or total."""
    parts = [_parts(each, group) for each in sums]
    total = sum(each.seconds for each in sums)
    found = []
    for name in {name for part in parts for name in part}:
        by_period = [part.get(name, 0.0) / _HOUR_SECONDS for part in parts]
        hours = sum(by_period)
        found.append(UsageLine(name, hours, by_period, 100 * _HOUR_SECONDS * hours / total if total else 0.0))
    return sorted(found, key=lambda line: (-line.hours, line.name))


def _parts(each: UsageSum, group: str) -> Mapping[str, float]:
    if group == "total":
        return {_TOTAL: each.seconds} if each.seconds else {}
    if group == "label":
        return {**each.by_label, **({_NO_LABEL: each.unlabeled} if each.unlabeled else {})}
    return {"user": each.by_user, "group": each.by_group}.get(group, each.by_pool)
