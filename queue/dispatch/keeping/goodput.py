"""What the time of held slots went to: told once when an attempt has ended, for what still holds slots at each reading.

The time is that of `dispatch.keeping.usage`, so sums of both agree; `jobs.time_parts` divides it. What is told stays
with the usage record and in the sums of its days (`slot_days`), which no deletion touches. An attempt whose facts were
deleted before that, or cannot be read, is not told.
"""

from __future__ import annotations

import json
import logging
import time
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date, datetime, timedelta
from itertools import groupby
from typing import Any, Literal, NamedTuple

from django.db import InterfaceError, OperationalError, connection, transaction
from django.db.models import Q
from django.utils import timezone
from psycopg.errors import QueryCanceled

from accounts.models import User
from accounts.refusals import Refusal
from dispatch.going_on import going_on
from dispatch.keeping import goodput_facts, host_pace, slot_days
from dispatch.keeping.goodput_facts import Facts, microseconds
from dispatch.keeping.usage import HELD, Periods, Unit
from hosts.models import ResourcePool
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

#: of whom it is told: a column of what is held, and of the sums by day; 0: of no experiment, or of all
_GROUPS: dict[Group, str] = {
    "user": "owner_id",
    "pool": "pool_id",
    "experiment": "coalesce(experiment_number, 0)",
    "total": "0::bigint",
}
#: the first day of a period; date_trunc alone takes most of the time of the statement
_PERIODS: dict[Unit, str] = {
    "day": "day",
    "week": "%(first)s::date + (day - %(first)s::date) / 7 * 7",
    "month": "date_trunc('month', day::timestamp)::date",
}
#: One statement, so that nothing that is told meanwhile counts twice. What is open is told by the reader, and here it
#: only counts for who has the most.
_SUMS = """
WITH untold AS MATERIALIZED (
  SELECT {who} AS who, run_key, slots, started_at, ended_at,
         greatest(started_at, %(after)s) AS begin, least(ended_at, %(before)s) AS until
  FROM ({held}) AS held WHERE went_to IS NULL AND slots > 0
), open AS MATERIALIZED (
  SELECT * FROM untold WHERE ended_at > %(open)s ORDER BY started_at DESC, run_key LIMIT %(most_open)s
), days AS NOT MATERIALIZED (
  SELECT {who} AS who, {period} AS period, part, slot_microseconds AS held
  FROM ({days}) AS days WHERE day >= %(first)s AND day < %(behind)s
  UNION ALL SELECT who, (period AT TIME ZONE 'UTC')::date, %(not_told)s, (slots * 1000000.0 *
    extract(epoch FROM least(until, period + %(step)s::interval) - greatest(begin, period)))::bigint
  FROM untold CROSS JOIN LATERAL generate_series(
    date_trunc(%(unit)s, begin, 'UTC'), until - interval '1 microsecond', %(step)s::interval) AS period
  WHERE run_key NOT IN (SELECT run_key FROM open)
), ranked AS MATERIALIZED (
  SELECT who, row_number() OVER (ORDER BY sum(held) DESC, who) > %(most)s AS is_rest FROM (
    SELECT who, held FROM days
    UNION ALL SELECT who, (slots * 1000000.0 * extract(epoch FROM until - begin))::bigint FROM open
  ) AS held GROUP BY who
)
SELECT shown, period, part, sum(held), NULL, NULL, NULL, NULL, (SELECT count(*) FROM ranked WHERE is_rest)
FROM (SELECT CASE WHEN is_rest THEN NULL ELSE who END AS shown, period, part, held
      FROM days JOIN ranked USING (who)) AS parts
GROUP BY {sets}
UNION ALL
SELECT CASE WHEN is_rest THEN NULL ELSE who END, NULL, NULL, NULL, run_key, slots, started_at, ended_at,
       (SELECT count(*) FROM ranked WHERE is_rest)
FROM open JOIN ranked USING (who)
"""
_EACH_PERIOD = "shown, period, part"
#: of each line the whole, and of each period all lines: far fewer rows
_WHOLE_LINES = "GROUPING SETS ((shown, part), (period, part))"
_OF_TASK = f"""
SELECT run_key, slots, started_at, ended_at, went_to FROM ({HELD}) AS held WHERE slots > 0 AND run_key LIKE %(key)s
"""
_TOTAL = """
INSERT INTO jobs_slottimetotal AS total (pool_id, part, slot_microseconds) VALUES (%s, %s, %s)
ON CONFLICT (pool_id, part) DO UPDATE SET slot_microseconds = total.slot_microseconds + excluded.slot_microseconds
"""
_EPOCH = date(1970, 1, 1)
#: more users, pools or experiments than there are
_ALL = 2**62


@dataclass
class WentTo:
    """Slot-seconds of a user, pool or experiment: in all and of each period, by part."""

    name: str
    parts: Counter[str] = field(default_factory=Counter)
    by_period: dict[str, Counter[str]] = field(default_factory=lambda: defaultdict(Counter))

    @property
    def seconds(self) -> float:
        return float(self.parts.total())

    def add(self, period: str, part: str, amount: int) -> None:
        self.parts[part] += amount
        self.by_period[period][part] += amount

    def add_days(self, by_day: _ByDay, periods: Periods) -> None:
        """Add what lies within the periods."""
        for number, parts in by_day.items():
            if periods.first <= (day := _day(number)) < periods.before.date():
                for part, amount in parts.items():
                    self.add(periods.name_of_day(day), part, amount)


class _Row(NamedTuple):
    run_key: str
    slots: int
    started_at: datetime
    ended_at: datetime


def tell_due(now: datetime, seconds: float = _ROUND_SECONDS) -> int:
    """Tell what attempts that have ended went to, the latest first; how many records. Repeating it does no harm."""
    until = time.monotonic() + seconds
    slot_days.add_rest()
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
        _keep(records, told, now)
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
def _keep(records: Sequence[UsageRecord], told: Mapping[str, _ByDay], now: datetime) -> None:
    """Fix what these records went to, and add it to all sums."""
    kept = [record for record in sorted(records, key=lambda one: one.run_key) if _is_kept(record, told)]
    if not kept:
        return
    slot_days.add([record.run_key for record in kept])
    totals: Counter[tuple[int, str]] = Counter()
    for record in kept:
        if record.slots and record.ended_at >= now - _LATEST:
            for parts in told[record.run_key].values():
                totals.update({(record.pool_id, part): amount for part, amount in parts.items()})
    with connection.cursor() as cursor:
        for (pool_id, part), amount in sorted(totals.items()):
            cursor.execute(_TOTAL, [pool_id, part, amount])


def _is_kept(record: UsageRecord, told: Mapping[str, _ByDay]) -> bool:
    """Whether nobody else has told it."""
    by_day = sorted(told[record.run_key].items())
    text = {_day(day).isoformat(): dict(sums) for day, sums in by_day}
    return bool(UsageRecord.objects.filter(pk=record.pk, went_to__isnull=True).update(went_to=text))


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


@dataclass
class Largest:
    """Who has the most slot-seconds, the largest first; the `more` others as one; and all of them."""

    lines: list[WentTo]
    more: int
    rest: WentTo | None
    total: WentTo


def sums(periods: Periods, group: Group = "total") -> list[WentTo]:
    """Who has something in these periods, the most slot-seconds first."""
    return largest(periods, group).lines


def largest(periods: Periods, group: Group, most: int = _ALL, *, each_period: bool = True) -> Largest:
    """The `most` of these with the most slot-seconds, and what is left; unless `each_period`, lines have no periods."""
    now = timezone.now()
    values = {
        **_times(periods, now),
        "unit": periods.unit,
        "step": f"1 {periods.unit}",
        "first": periods.first,
        "behind": periods.before.date(),
        "open": now - timedelta(seconds=_OPEN_SECONDS),
        "most_open": _MOST_OPEN,
        "most": most,
        "not_told": NOT_TOLD,
    }
    sets = _EACH_PERIOD if each_period else _WHOLE_LINES
    statement = _SUMS.format(
        who=_GROUPS[group], period=_PERIODS[periods.unit], held=HELD, days=slot_days.DAYS, sets=sets
    )
    lines: defaultdict[int | None, WentTo] = defaultdict(lambda: WentTo(""))
    running: dict[str, tuple[int | None, _Row]] = {}
    total, more = WentTo(""), 0
    for who, period, part, amount, *of_run, others in _rows(statement, values):
        more = max(more, others)
        if part is None:
            running[of_run[0]] = who, _Row(*of_run)
        elif period is None:
            lines[who].parts[part] += amount
        else:
            (lines[who] if each_period else total).add(periods.name_of_day(period), part, amount)
    for run_key, by_day in _told_now([row for _, row in running.values()], now).items():
        for line in (lines[running[run_key][0]], total):
            line.add_days(by_day, periods)
    if each_period:
        total = together(lines.values())
    found = {who: _in_seconds(line) for who, line in lines.items() if line.seconds}
    rest = found.pop(None, None)
    for who, name in _names(group, [who for who in found if who is not None]).items():
        found[who].name = name
    in_order = sorted(found.values(), key=lambda one: (-one.seconds, one.name))
    return Largest(in_order, more, rest, _in_seconds(total))


def together(found: Iterable[WentTo]) -> WentTo:
    """All of them as one."""
    whole = WentTo("")
    for each in found:
        whole.parts.update(each.parts)
        for period, parts in each.by_period.items():
            whole.by_period[period].update(parts)
    return whole


def of_task(task_id: str, periods: Periods) -> WentTo:
    """All that one task has held."""
    now = timezone.now()
    found = WentTo("")
    rows = _rows(_OF_TASK, {**_times(periods, now), "key": f"{_escaped(task_id)}.%"})
    untold = [_Row(*row[:-1]) for row in rows if row[-1] is None]
    for *_, went_to in rows:
        by_date = json.loads(went_to) if isinstance(went_to, str) else went_to or {}
        for day, parts in by_date.items():
            found.add_days({(date.fromisoformat(day) - _EPOCH).days: Counter(parts)}, periods)
    for by_day in _told_now(untold, now).values():
        found.add_days(by_day, periods)
    return _in_seconds(found)


def _times(periods: Periods, now: datetime) -> dict[str, Any]:
    return {"after": periods.after, "before": periods.before, "now": now}


def _told_now(rows: Sequence[_Row], now: datetime) -> dict[str, _ByDay]:
    """What went to what of records that are not told yet, as far as it is known now."""
    facts = goodput_facts.of({_allocation_of(row.run_key) for row in rows}, now, _MOST_OPEN_REPORTS)
    return _told(rows, facts)


def _names(group: Group, ids: Collection[int]) -> dict[int, str]:
    if group == "user":
        return dict(User.objects.filter(pk__in=ids).values_list("pk", "username"))
    if group == "pool":
        return dict(ResourcePool.with_removed.filter(pk__in=ids).values_list("pk", "name"))
    return {number: str(number) if number else "" for number in ids}


def _rows(statement: str, values: Mapping[str, Any]) -> list[Any]:
    try:
        with transaction.atomic(), connection.cursor() as cursor:
            cursor.execute(
                f"SET LOCAL statement_timeout = '{_STATEMENT_SECONDS}s'; SET LOCAL work_mem = '64MB'"
            )
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
