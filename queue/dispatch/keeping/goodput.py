"""What the time of held slots went to: told once when an attempt has ended, for what still holds slots at each reading.

The time is that of `dispatch.keeping.usage`, so sums of both agree; `jobs.time_parts` divides it. What is told stays
with the usage record, which no deletion touches. An attempt whose facts were deleted before that, or cannot be read, is
not told.
"""

from __future__ import annotations

import logging
import time
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from itertools import groupby
from typing import Any, Literal, NamedTuple

from django.db import InterfaceError, OperationalError, connection, transaction
from django.db.models import Q
from django.utils import timezone
from psycopg.errors import QueryCanceled

from accounts.refusals import Refusal
from dispatch.going_on import going_on
from dispatch.keeping import goodput_facts, host_pace
from dispatch.keeping.goodput_facts import Facts, microseconds
from dispatch.keeping.usage import HELD, Periods
from jobs.models import UsageRecord
from jobs.step_facts import SECOND
from jobs.time_parts import NOT_TOLD, Held, not_told, seconds_by_day

log = logging.getLogger(__name__)
Group = Literal["user", "pool", "experiment", "total"]
_ByDay = Mapping[int, Counter[str]]

#: Told so long after the end, when late reports have arrived and idle GPUs were looked at.
_AFTER_SECONDS = 180
#: what one round tells at most, so that a history from before an upgrade is told little by little
_RECORDS_PER_ROUND = 200
_ROUND_SECONDS = 10
#: An attempt that ended before is no increase of the counters for Prometheus.
_LATEST = timedelta(days=1)
#: Members whose parts one reading makes itself, and reports that it reads; those beyond are not told before they end.
_MOST_OPEN = 300
_MOST_OPEN_REPORTS = 2_000_000
_OPEN_SECONDS = 3600
_STATEMENT_SECONDS = 30

_GROUPS: dict[Group, str] = {
    "user": "(SELECT username FROM accounts_user WHERE id = owner_id)",
    "pool": "(SELECT name FROM hosts_resourcepool WHERE id = pool_id)",
    "experiment": "coalesce(experiment_number::text, '')",
    "total": "''",
}
_OPEN = """
SELECT {group}, run_key, slots, started_at, ended_at FROM ({held}) AS held
WHERE went_to IS NULL AND slots > 0 AND ended_at > %(open)s AND run_key LIKE %(of_task)s
ORDER BY started_at DESC, run_key LIMIT %(most)s
"""
#: What is told; and of the rest how long it was held. What was read as open is left out: it may be told by now.
_SUMS = """
WITH held AS MATERIALIZED (
  SELECT {group} AS name, held.* FROM ({held}) AS held WHERE slots > 0 AND run_key LIKE %(of_task)s),
parts AS (
  SELECT name, day.key::date AS day, part.key AS part, part.value::numeric AS microseconds
  FROM held, jsonb_each(went_to) day, jsonb_each_text(day.value) part
  WHERE went_to IS NOT NULL AND run_key <> ALL(%(told)s) AND day.key >= %(first)s AND day.key < %(behind)s
  UNION ALL
  SELECT name, (day AT TIME ZONE 'UTC')::date, %(not_told)s,
    (slots * extract(epoch FROM least(ended_at, day + interval '1 day') - greatest(started_at, day)) * 1000000)::numeric
  FROM held CROSS JOIN LATERAL generate_series(date_trunc('day', greatest(started_at, %(after)s), 'UTC'),
    least(ended_at, %(before)s) - interval '1 microsecond', interval '1 day') AS day
  WHERE went_to IS NULL AND run_key <> ALL(%(told)s)
)
SELECT name, day, part, sum(microseconds) FROM parts GROUP BY 1, 2, 3
"""
_TOTAL = """
INSERT INTO jobs_slottimetotal AS total (pool_id, part, slot_microseconds) VALUES (%s, %s, %s)
ON CONFLICT (pool_id, part) DO UPDATE SET slot_microseconds = total.slot_microseconds + excluded.slot_microseconds
"""
_EPOCH = date(1970, 1, 1)


@dataclass
class WentTo:
    """Slot-seconds of a user, pool or experiment: in all and of each period, by part."""

    name: str
    parts: Counter[str] = field(default_factory=Counter)
    by_period: dict[str, Counter[str]] = field(default_factory=lambda: defaultdict(Counter))

    @property
    def seconds(self) -> float:
        return float(self.parts.total())


class _Row(NamedTuple):
    run_key: str
    slots: int
    started_at: datetime
    ended_at: datetime


def tell_due(now: datetime, seconds: float = _ROUND_SECONDS) -> int:
    """Tell what attempts that have ended went to, the latest first; how many records. Repeating it does no harm."""
    until = time.monotonic() + seconds
    return _tell(Q(ended_at__lt=now - timedelta(seconds=_AFTER_SECONDS)), now, until)


def tell_all_of(experiment_number: int, now: datetime) -> None:
    """Tell all of an experiment whose facts are about to be deleted."""
    while _tell(Q(experiment_number=experiment_number), now):
        pass


def _tell(which: Q, now: datetime, until: float | None = None) -> int:
    """How many records. Each attempt by itself: one that cannot be told spoils no other."""
    due = UsageRecord.objects.filter(which, went_to__isnull=True).order_by("-ended_at", "run_key")
    count = 0
    for allocation_id, group in groupby(
        due[:_RECORDS_PER_ROUND], key=lambda one: _allocation_of(one.run_key)
    ):
        if until is not None and time.monotonic() > until:
            break
        records = list(group)
        rows = [_Row(one.run_key, one.slots, one.started_at, one.ended_at) for one in records]
        told, facts = _told_or_not(allocation_id, rows, now)
        for record in records:
            _keep(record, told[record.run_key], now)
        if facts is not None and facts.paces:
            with going_on(f"the paces of the hosts of {allocation_id}"):
                host_pace.note(allocation_id, facts.paces, now)
        count += len(records)
    return count


def _allocation_of(run_key: str) -> str:
    return run_key.rpartition(".")[0]


def _told_or_not(
    allocation_id: str, rows: Sequence[_Row], now: datetime
) -> tuple[dict[str, _ByDay], Facts | None]:
    try:
        with transaction.atomic():
            found = goodput_facts.of({allocation_id}, now)
            return _told(rows, found), found.get(allocation_id)
    except (OperationalError, InterfaceError):
        raise
    except Exception:
        log.exception("what attempt %s went to cannot be told", allocation_id)
        return _told(rows, {}), None


@transaction.atomic
def _keep(record: UsageRecord, by_day: _ByDay, now: datetime) -> None:
    text = {_day(day).isoformat(): dict(sums) for day, sums in sorted(by_day.items())}
    if not UsageRecord.objects.filter(pk=record.pk, went_to__isnull=True).update(went_to=text):
        return
    if not record.slots or record.ended_at < now - _LATEST:
        return
    with connection.cursor() as cursor:
        for part, amount in sorted(sum(by_day.values(), Counter[str]()).items()):
            cursor.execute(_TOTAL, [record.pool_id, part, amount])


def _told(rows: Sequence[_Row], found: Mapping[str, Facts]) -> dict[str, _ByDay]:
    """Run key -> slot-microseconds by day and part."""
    told: dict[str, _ByDay] = {}
    for row in rows:
        held = Held(microseconds(row.started_at), microseconds(row.ended_at), None, row.slots)
        if (facts := found.get(_allocation_of(row.run_key))) is None:
            told[row.run_key] = not_told(held)
            continue
        member = int(row.run_key.rpartition(".")[2])
        held = held._replace(started_at=facts.started.get(member), idle=facts.idle.get(member, ()))
        (told[row.run_key],) = seconds_by_day(facts.attempt, [held])
    return told


def _day(number: int) -> date:
    return _EPOCH + timedelta(days=number)


def sums(periods: Periods, group: Group = "total") -> list[WentTo]:
    """Who has something in these periods, the most slot-seconds first."""
    return _sums(periods, group, "")


def of_task(task_id: str, periods: Periods) -> WentTo:
    """All that one task has held."""
    found = _sums(periods, "total", task_id)
    return found[0] if found else WentTo("")


def _sums(periods: Periods, group: Group, task_id: str) -> list[WentTo]:
    now = timezone.now()
    values: dict[str, Any] = {
        "after": periods.after,
        "before": periods.before,
        "now": now,
        "first": periods.after.date().isoformat(),
        "behind": periods.before.date().isoformat(),
        "open": now - timedelta(seconds=_OPEN_SECONDS),
        "most": _MOST_OPEN,
        "not_told": NOT_TOLD,
        "of_task": f"{_escaped(task_id)}.%" if task_id else "%",
    }
    found: dict[str, WentTo] = {}
    open_rows = _rows(_OPEN.format(group=_GROUPS[group], held=HELD), values)
    names = {row[1]: (row[0], _Row(*row[1:])) for row in open_rows}
    running = [row for _, row in names.values()]
    facts = goodput_facts.of({_allocation_of(key) for key in names}, now, _MOST_OPEN_REPORTS)
    told = _told(running, facts)
    rows = _rows(_SUMS.format(group=_GROUPS[group], held=HELD), {**values, "told": list(told)})
    for run_key, by_day in told.items():
        rows += [
            (names[run_key][0], _day(day), what, amount)
            for day, each in by_day.items()
            for what, amount in each.items()
        ]
    for name, day, what, amount in rows:
        if not periods.first <= day < periods.before.date():
            continue
        who = found.setdefault(name, WentTo(name))
        who.parts[what] += amount
        who.by_period[periods.name_of(datetime(day.year, day.month, day.day, tzinfo=UTC))][what] += amount
    return sorted(map(_in_seconds, found.values()), key=lambda one: (-one.seconds, one.name))


def _rows(statement: str, values: Mapping[str, Any]) -> list[Any]:
    try:
        with transaction.atomic(), connection.cursor() as cursor:
            cursor.execute(f"SET LOCAL statement_timeout = '{_STATEMENT_SECONDS}s'")
            cursor.execute(statement, values)
            return list(cursor.fetchall())
    except OperationalError as error:
        if not isinstance(error.__cause__, QueryCanceled):
            raise
        raise Refusal(
            f"Adding up took longer than {_STATEMENT_SECONDS} seconds; ask for fewer days, weeks or months."
        ) from error


def _in_seconds(found: WentTo) -> WentTo:
    return WentTo(
        found.name,
        _seconds(found.parts),
        defaultdict(Counter, {period: _seconds(each) for period, each in found.by_period.items()}),
    )


def _seconds(parts: Mapping[str, Any]) -> Counter[str]:
    return Counter({what: float(amount) / SECOND for what, amount in parts.items()})


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace("%", "\\%").replace("_", "\\_")
