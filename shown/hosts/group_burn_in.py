"""Burn-ins of hosts together as they are shown: the rates of all of them, of each pair, and what was found."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime

from accounts.refusals import Code, Refusal
from commands.models import GroupBurnIn
from commands.states import END_STATES
from hosts.health import links
from hosts.health.links import MEASURES, UNIT, Rate
from hosts.models import Host


@dataclass(frozen=True)
class RateRow:
    """`measure` send is from the first host to the second. `error`: why it failed; then the value is 0.

    `median`: of the all-reduces of `pairs` other pairs of the pool, None if they are too few.
    """

    measure: str
    name: str
    hosts: list[str]
    value: float
    unit: str
    median: float | None
    pairs: int
    error: str

    @property
    def amount(self) -> str:
        """`9.8 GB/s`, or why there is none."""
        return self.error or f"{self.value:.3g} {self.unit}"

    @property
    def usual(self) -> str:
        return "" if self.median is None else f"{self.median:.3g} {self.unit}"


@dataclass(frozen=True)
class FindingRow:
    """`host` None: because of which host is not known."""

    host: str | None
    sentence: str


@dataclass(frozen=True)
class GroupRows:
    """`ending`: how its command ended, empty while it waits or runs."""

    command_id: str
    hosts: list[str]
    submitted_at: datetime
    ended_at: datetime | None
    judged_at: datetime | None
    ending: str
    rates: list[RateRow]
    findings: list[FindingRow]


def find(command_id: uuid.UUID) -> GroupRows:
    """Raises Refusal."""
    row = GroupBurnIn.objects.select_related("command__job").filter(pk=command_id).first()
    if row is None:
        raise Refusal(f"There is no burn-in of several hosts {command_id}.", Code.NOT_FOUND)
    return _rows(row)


def newest_of(host: Host) -> GroupRows | None:
    """The last one in which the host took part that measured all, with its own rates and those of all.

    Else the last one that has ended, else the open one. None for a host that never took part in one.
    """
    all_of_it = GroupBurnIn.objects.filter(parts__host=host).select_related("command__job")
    all_of_it = all_of_it.order_by("-command__submitted_at")
    ended = all_of_it.filter(command__state__in=END_STATES)
    row = ended.filter(is_done=True).first() or ended.first() or all_of_it.first()
    return None if row is None else _rows(row, only=host)


def _rows(row: GroupBurnIn, only: Host | None = None) -> GroupRows:
    names = {str(host.pk): host.name for host in row.hosts.order_by("name")}
    rates = [rate for rate in links.stored(row.rates) if only is None or str(only.pk) in rate.parts]
    shown = [_rate(rate, names, row.medians) for rate in rates if rate.subset <= names.keys()]
    order = list(MEASURES)
    return GroupRows(
        command_id=str(row.pk),
        hosts=list(names.values()),
        submitted_at=row.command.submitted_at,
        ended_at=row.command.ended_at,
        judged_at=row.judged_at,
        ending=row.command.ending,
        rates=sorted(shown, key=lambda each: (-len(each.hosts), order.index(each.measure), each.hosts)),
        findings=[FindingRow(names.get(each["host"]), each["sentence"]) for each in row.findings],
    )


def _rate(rate: Rate, names: Mapping[str, str], usually: links.Medians) -> RateRow:
    is_compared = rate.measure == "all_reduce" and len(rate.parts) == 2 and rate.how in usually
    median, pairs = usually[rate.how] if is_compared else (None, 0)
    hosts = [names[part] for part in rate.parts]
    return RateRow(
        measure=rate.measure,
        name=MEASURES[rate.measure],
        hosts=hosts if rate.measure == "send" else sorted(hosts),
        value=rate.value,
        unit=UNIT,
        median=median,
        pairs=pairs,
        error=rate.sentence,
    )
