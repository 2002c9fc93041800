"""What reservations cost: the slots that are free on hosts kept for a gang, added up while it waits for the rest."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from scheduling.reasons import WaitCode
from scheduling.world import Plan

LEAST_TOLD_HOURS = 0.1
#: seconds since the last time that are counted at most: what was free while no pass looked is not known
LONGEST_GAP = 300.0


@dataclass(frozen=True, slots=True)
class Cost:
    """Of the hosts kept for a task, by their names, since when (epoch seconds), and the slots free there as of `at`.

    `slot_seconds`: what has been idle there so far. `keeps_from`: tasks that wait because of it.
    """

    hosts: tuple[str, ...]
    since: float
    at: float
    free: int
    slot_seconds: float
    keeps_from: int

    def record(self) -> dict[str, Any]:
        """As it is stored with the forecast."""
        return {
            "hosts": list(self.hosts),
            "since": self.since,
            "at": self.at,
            "free": self.free,
            "slot_seconds": self.slot_seconds,
            "keeps_from": self.keeps_from,
        }


def told(record: Mapping[str, Any]) -> str:
    """What is added to the reason of the gang; empty if nothing to speak of has been idle."""
    hours = record["slot_seconds"] / 3600
    return f"{hours:.1f} slot-hours idle there so far" if hours >= LEAST_TOLD_HOURS else ""


def costs(
    before: Mapping[str, Mapping[str, Any]], plan: Plan, labels: Mapping[str, str], now: float
) -> dict[str, Cost]:
    """Task id -> what its reservation has cost. `before`: records of the last time. `labels`: of tasks, in reasons."""
    waiting = Counter[str]()
    for reason in plan.waits.values() if plan.reservations else ():
        if reason.code == WaitCode.KEPT_FOR:
            whom = reason.data["for"]
            assert isinstance(whom, list)
            waiting.update(whom)
    found = {}
    for task in plan.reservations:
        reason = plan.waits[task]
        parts = reason.data.get("hosts")
        if reason.code != WaitCode.HELD or not isinstance(parts, list):
            continue
        was = before.get(task, {"since": now, "at": now, "free": 0, "slot_seconds": 0.0})
        idle = was["slot_seconds"] + was["free"] * min(LONGEST_GAP, max(0.0, now - was["at"]))
        hosts, free = tuple(part[0] for part in parts), sum(part[1] for part in parts)
        found[task] = Cost(hosts, was["since"], now, free, idle, waiting[labels[task]])
    return found
