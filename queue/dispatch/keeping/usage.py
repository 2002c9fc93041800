"""How long slots were held, by whom and in which pool: kept when an attempt ends, and read as it was or summed up.

A record per member is written in the transaction that ends the attempt, and no deletion touches it; what still holds
slots is read from its own rows. Times are clipped to what was asked for; the unit is the slot-second. Sums are by
days, weeks or months in UTC, which are read as people and Determined's clients write them.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, time, timedelta
from typing import Any, Literal

from django.db import connection
from django.utils import timezone

from accounts.refusals import Refusal
from experiments.models import Experiment
from jobs.models import Allocation, Member, Task, UsageRecord

Unit = Literal["day", "week", "month"]
#: how each unit is written, and an example; for a week or a month any day of it will do
_FORMS = {
    "day": (["%Y-%m-%d"], "2026-11-21"),
    "week": (["%Y-%m-%d"], "2026-11-16"),
    "month": (["%Y-%m", "%Y-%m-%d"], "2026-11"),
}

#: everything that was held for a time between %(after)s and %(before)s, whether its job is still here or not
HELD = """
SELECT run_key, kind, owner_id, pool_id, slots, started_at, ended_at, labels, experiment_number, workspace, went_to
FROM jobs_usagerecord WHERE ended_at > %(after)s AND started_at < %(before)s
UNION ALL
SELECT a.id || '.' || m.index, t.kind, j.owner_id, a.pool_id, m.slots, a.assigned_at, coalesce(m.ended_at, %(now)s),
       coalesce(e.labels, '[]'), e.id, coalesce(w.name, ''), NULL
FROM jobs_allocation a JOIN jobs_member m ON m.allocation_id = a.id
JOIN jobs_task t ON t.id = a.task_id JOIN jobs_job j ON j.id = t.job_id
LEFT JOIN experiments_experiment e ON e.job_id = j.id
LEFT JOIN experiments_project p ON p.id = e.project_id
LEFT JOIN experiments_workspace w ON w.id = p.workspace_id
WHERE a.state <> 'TERMINATED' AND a.assigned_at < %(before)s AND coalesce(m.ended_at, %(now)s) > %(after)s
  AND e.unmanaged IS NOT TRUE
"""
_SUMS = f"""
WITH sums AS (
  SELECT period, owner_id, pool_id, labels,
         sum(slots * extract(epoch FROM least(ended_at, %(before)s, period + %(step)s::interval)
                                        - greatest(started_at, %(after)s, period))::float8) AS seconds
  FROM ({HELD}) AS held
  CROSS JOIN LATERAL generate_series(date_trunc(%(unit)s, greatest(started_at, %(after)s), 'UTC'),
    least(ended_at, %(before)s) - interval '1 microsecond', %(step)s::interval) AS period
  WHERE slots > 0 GROUP BY 1, 2, 3, 4
)
SELECT period, u.username, pool.name, labels, seconds, g.name, department.name
FROM sums JOIN accounts_user u ON u.id = owner_id JOIN hosts_resourcepool pool ON pool.id = pool_id
LEFT JOIN accounts_group g ON g.id = u.group_id LEFT JOIN accounts_group department ON department.id = g.parent_id
ORDER BY 1
"""
_PAGE = f"""
SELECT run_key, kind, u.id, u.username, pool.name, labels, slots, started_at, ended_at, experiment_number, workspace,
       extract(epoch FROM least(ended_at, %(before)s) - greatest(started_at, %(after)s))::float8
FROM ({HELD}) AS held
JOIN accounts_user u ON u.id = held.owner_id JOIN hosts_resourcepool pool ON pool.id = held.pool_id
WHERE (started_at, run_key) > (%(began)s, %(behind)s)
ORDER BY started_at, run_key LIMIT %(limit)s
"""
_BEFORE_ALL = datetime.fromisoformat("0001-01-01T00:00:00+00:00")


@dataclass
class UsageSum:
    """Slot-seconds of one day or month, in all and by who, where and what; a job counts for each of its labels."""

    period: str
    seconds: float = 0.0
    by_user: Counter[str] = field(default_factory=Counter)
    by_pool: Counter[str] = field(default_factory=Counter)
    by_label: Counter[str] = field(default_factory=Counter)
    #: of those of which the users are members now; a team's also counts for its department
    by_group: Counter[str] = field(default_factory=Counter)
    #: of what has no label
    unlabeled: float = 0.0


@dataclass(frozen=True)
class Held:
    """What a member held. `seconds` lie within what was asked for; `ended_at` is now while it still holds them."""

    run_key: str
    kind: str
    user_id: int
    username: str
    pool: str
    labels: list[str]
    slots: int
    started_at: datetime
    ended_at: datetime
    experiment_id: int | None
    workspace: str
    seconds: float

    @property
    def allocation_id(self) -> str:
        return self.run_key.rpartition(".")[0]


def keep(allocation: Allocation, members: Sequence[Member]) -> None:
    """Record what an attempt held, in the transaction that ends it; all its members have ended.

    A detached run holds nothing of any pool.
    """
    about = _about(allocation.task)
    if about is None:
        return
    labels, number, workspace = about
    UsageRecord.objects.bulk_create(
        UsageRecord(
            run_key=member.run_key,
            kind=allocation.task.kind,
            owner_id=allocation.task.job.owner_id,
            pool_id=allocation.pool_id,
            slots=member.slots,
            started_at=allocation.assigned_at,
            ended_at=member.ended_at or allocation.assigned_at,
            labels=labels,
            experiment_number=number,
            workspace=workspace,
        )
        for member in members
    )


def _about(task: Task) -> tuple[list[str], int | None, str] | None:
    """Labels, experiment and workspace; None for a detached run."""
    if task.kind != Task.Kind.TRIAL:
        return [], None, ""
    found = Experiment.objects.select_related("project__workspace")
    experiment = found.only("labels", "unmanaged", "project__workspace__name").get(job_id=task.job_id)
    if experiment.unmanaged:
        return None
    return experiment.labels, experiment.pk, experiment.project.workspace.name


def sums(periods: Periods) -> list[UsageSum]:
    """Every period, those without any use too."""
    found = {name: UsageSum(name) for name in periods.names}
    values = {**_between(periods.after, periods.before), "unit": periods.unit, "step": f"1 {periods.unit}"}
    with connection.cursor() as cursor:
        cursor.execute(_SUMS, values)
        for start, username, pool, labels, seconds, *groups in cursor.fetchall():
            total = found[periods.name_of(start)]
            total.seconds += seconds
            total.by_user[username] += seconds
            total.by_pool[pool] += seconds
            for group in filter(None, groups):
                total.by_group[group] += seconds
            for label in set(_list(labels)):
                total.by_label[label] += seconds
            if not _list(labels):
                total.unlabeled += seconds
    return list(found.values())


def held(after: datetime, before: datetime, *, behind: Held | None = None, limit: int) -> list[Held]:
    """The next `limit` of everything that was held between two times, the earliest start first."""
    began, key = (behind.started_at, behind.run_key) if behind else (_BEFORE_ALL, "")
    with connection.cursor() as cursor:
        cursor.execute(_PAGE, {**_between(after, before), "began": began, "behind": key, "limit": limit})
        return [_held(*row) for row in cursor.fetchall()]


def _held(run_key: str, *rest: Any) -> Held:
    kind, user_id, username, pool, labels, *more = rest
    return Held(run_key, kind, user_id, username, pool, _list(labels), *more)


def _between(after: datetime, before: datetime) -> dict[str, Any]:
    return {"after": after, "before": before, "now": timezone.now()}


def _list(labels: Any) -> list[str]:
    """As the driver gives JSON in a plain cursor: text, or values already."""
    return list(json.loads(labels) if isinstance(labels, str) else labels)


@dataclass(frozen=True)
class Periods:
    """Whole days, weeks (from Monday) or months, from the one of `first` to the end of the one of `last`."""

    unit: Unit
    first: date
    last: date

    @property
    def starts(self) -> list[date]:
        found, at = [], self.first
        while at <= self.last:
            found.append(at)
            at = _start_after(self.unit, at)
        return found

    @property
    def names(self) -> list[str]:
        return [_name_of(self.unit, start) for start in self.starts]

    def name_of(self, moment: datetime) -> str:
        """`2026-11-21`, `2026-11`."""
        return self.name_of_day(moment.astimezone(UTC).date())

    def name_of_day(self, day: date) -> str:
        return _name_of(self.unit, _start_of(self.unit, day))

    @property
    def after(self) -> datetime:
        return datetime.combine(self.first, time(), UTC)

    @property
    def before(self) -> datetime:
        return datetime.combine(_start_after(self.unit, self.last), time(), UTC)


_DAYS: dict[str, int] = {"day": 1, "week": 7}


def _start_of(unit: Unit, day: date) -> date:
    """The first day of the period that this one lies in."""
    if unit == "week":
        return day - timedelta(days=day.weekday())
    return day if unit == "day" else day.replace(day=1)


def _name_of(unit: Unit, start: date) -> str:
    return start.isoformat()[: 7 if unit == "month" else 10]


def _start_after(unit: Unit, start: date) -> date:
    if unit != "month":
        return start + timedelta(days=_DAYS[unit])
    return (start.replace(day=1) + timedelta(days=31)).replace(day=1)


def between(unit: Unit, first: str, last: str, *, most: int) -> Periods:
    """The periods from `first` to `last`, both with them. Raises Refusal, for more than `most` too."""
    periods = Periods(unit, _read_day(unit, first), _read_day(unit, last))
    if periods.first > periods.last:
        raise Refusal(f"The first {unit}, {first}, is after the last, {last}; swap them.")
    if periods.last.year == date.max.year:  # what ends then has no end
        raise Refusal(f"Found {last!r}, allowed: a {unit} before the year {date.max.year}.")
    count = _count_of(periods)
    if count > most:
        raise Refusal(f"Found {count} {unit}s, allowed: at most {most}. Request a shorter period.")
    return periods


def _count_of(periods: Periods) -> int:
    first, last = periods.first, periods.last
    if periods.unit != "month":
        return (last - first).days // _DAYS[periods.unit] + 1
    return (last.year - first.year) * 12 + last.month - first.month + 1


def latest(unit: Unit, count: int, now: datetime) -> Periods:
    """The last `count` periods, the present one last."""
    last = now.astimezone(UTC).date()
    if unit != "month":
        last = _start_of(unit, last)
        return Periods(unit, last - timedelta(days=_DAYS[unit] * (count - 1)), last)
    months = last.year * 12 + last.month - count
    return Periods(unit, date(months // 12, months % 12 + 1, 1), last.replace(day=1))


def _read_day(unit: Unit, text: str) -> date:
    forms, example = _FORMS[unit]
    for form in forms:
        with suppress(ValueError):
            found = datetime.strptime(text.strip(), form).date()
            return _start_of(unit, found)
    raise Refusal(f"Found {text!r}, allowed: a {unit}, such as {example}.")


def moment(text: str) -> datetime:
    """An exact time; without a zone it is UTC, and a day alone is its midnight. Raises Refusal."""
    try:
        found = datetime.fromisoformat(text.strip())
    except ValueError:
        raise Refusal(f"Found {text!r}, allowed: a time, such as 2026-11-21T00:00:00Z.") from None
    return found if found.tzinfo else found.replace(tzinfo=UTC)


def times(after: str, before: str) -> tuple[datetime, datetime]:
    """Two exact times in order. Raises Refusal."""
    first, last = moment(after), moment(before)
    if first > last:
        raise Refusal(f"The first time, {after}, is after the last, {before}; swap them.")
    return first, last
