"""The burn-ins of a host as they are shown: figures beside those of its pool's other hosts, and what was found."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from commands import burn_in
from commands.models import BurnIn
from commands.states import END_STATES
from hosts.health.burn_in import MEASURES, Compared, compare
from hosts.models import Host


@dataclass(frozen=True)
class FigureRow:
    """`verdict`: ok, slow, bad, or unknown if too few other hosts were measured."""

    slot: int | None
    measure: str
    name: str
    value: float
    unit: str
    median: float | None
    hosts: int
    verdict: str


@dataclass(frozen=True)
class BurnInRows:
    """`open_id`: of the burn-in that waits or runs, empty without one; the rest is of the last one that has ended."""

    command_id: str
    submitted_at: datetime
    ended_at: datetime | None
    judged_at: datetime | None
    open_id: str
    ending: str
    rows: list[FigureRow]
    findings: list[str]


def of(host: Host) -> BurnInRows | None:
    """None for a host that was never asked for one."""
    all_of_it = BurnIn.objects.filter(host=host).select_related("command").order_by("-command__submitted_at")
    newest = all_of_it.filter(command__state__in=END_STATES).first() or all_of_it.first()
    if newest is None:
        return None
    under_way = burn_in.open_of(host)
    compared = compare(burn_in.figures_of(newest), burn_in.of_others(host))
    return BurnInRows(
        command_id=str(newest.command_id),
        submitted_at=newest.command.submitted_at,
        ended_at=newest.command.ended_at,
        judged_at=newest.judged_at,
        open_id=str(under_way.command_id) if under_way else "",
        ending=newest.command.ending,
        rows=[_row(each) for each in sorted(compared, key=_order)],
        findings=[each["sentence"] for each in newest.findings],
    )


def _order(each: Compared) -> tuple[bool, int, int]:
    """The host first, then slot by slot, each in the order of the measures."""
    slot = each.figure.slot
    return slot is not None, slot or 0, list(MEASURES).index(each.figure.measure)


def _row(each: Compared) -> FigureRow:
    known = MEASURES[each.figure.measure]
    unknown = bool(known.unit) and each.median is None
    verdict = "bad" if each.is_bad else "slow" if each.is_slow else "unknown" if unknown else "ok"
    return FigureRow(
        slot=each.figure.slot,
        measure=each.figure.measure,
        name=known.what,
        value=each.figure.value,
        unit=known.unit,
        median=each.median,
        hosts=each.hosts,
        verdict=verdict,
    )
