"""The cluster in figures, as PostgreSQL has it now: a few statements of bounded cost, for monitoring."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from django.db import connection, transaction

from commands import burn_in
from events import leases
from hosts.models import Host

#: A statement that takes longer is given up: who watches a struggling database must not add to its load.
STATEMENT_SECONDS = 5

#: where a live task stands, in the order of its life
TASK_STATES = ("waiting", "assigned", "starting", "running", "terminating")
#: of hosts (`Host.state`)
HOST_STATES = (
    "ready",
    "silent",
    "disabled",
    "draining",
    "unknown",
    "admitting",
    "failed",
    "suspended",
    "lost",
)

_Row = tuple[Any, ...]
_Rows = Callable[[str], list[_Row]]

_POOLS = """
SELECT pool.name, extract(epoch FROM pool.planned_at)::float8, kept.took_ms / 1000,
  (SELECT count(*) FROM hosts_poolchange change WHERE change.pool_id = pool.id),
  pool.spare_hosts
FROM hosts_resourcepool pool LEFT JOIN hosts_poolplan kept ON kept.pool_id = pool.id
WHERE NOT pool.removed ORDER BY pool.name
"""
_TASKS = """
SELECT pool.name, lower(coalesce(attempt.state, 'WAITING')), count(*), sum(task.slots)
FROM jobs_task task JOIN jobs_job job ON job.id = task.job_id JOIN hosts_resourcepool pool ON pool.id = job.pool_id
LEFT JOIN jobs_allocation attempt ON attempt.task_id = task.id AND attempt.state <> 'TERMINATED'
WHERE task.state IN ('WAITING', 'RUNNING') GROUP BY 1, 2
"""
_HOSTS = """
SELECT pool.name, host.admission, host.contact, host.enabled, host.draining, count(*),
  coalesce(sum(slots.present), 0), coalesce(sum(slots.usable), 0), coalesce(sum(slots.held), 0),
  coalesce(sum(CASE WHEN host.quarantine <> '{}' THEN slots.present ELSE slots.faulty END), 0)
FROM hosts_host host JOIN hosts_resourcepool pool ON pool.id = host.pool_id LEFT JOIN (
  SELECT slot.host_id, count(*) FILTER (WHERE NOT slot.missing) AS present, count(hold.id) AS held,
    count(*) FILTER (WHERE NOT slot.missing AND slot.enabled AND NOT slot.draining) AS usable,
    count(*) FILTER (WHERE NOT slot.missing AND slot.quarantine <> '{}') AS faulty
  FROM hosts_slot slot LEFT JOIN jobs_slothold hold ON hold.slot_id = slot.id AND hold.released_at IS NULL
  GROUP BY slot.host_id) slots ON slots.host_id = host.id
WHERE host.admission <> %(removed)s GROUP BY 1, 2, 3, 4, 5
"""
_RUNS = """
SELECT pool.name, count(*), extract(epoch FROM max(member.heartbeat_at))::float8,
  extract(epoch FROM min(coalesce(member.heartbeat_at, member.started_at)))::float8,
  coalesce(sum((member.spool->>'unshipped_bytes')::float8), 0), coalesce(sum(stream.offset), 0)
FROM jobs_member member JOIN jobs_allocation attempt ON attempt.id = member.allocation_id
JOIN hosts_resourcepool pool ON pool.id = attempt.pool_id LEFT JOIN logs_stream stream ON stream.member_id = member.id
WHERE attempt.state <> 'TERMINATED' AND member.state = 'RUNNING' GROUP BY 1
"""
_TABLES = """
SELECT relname, n_tup_ins, pg_total_relation_size(relid) FROM pg_stat_user_tables
WHERE schemaname = current_schema() AND relname ~ '^(events|logs|metrics)_' ORDER BY relname
"""
_SLOT_TIME = """
SELECT pool.name, total.part, total.slot_microseconds / 1000000
FROM jobs_slottimetotal total JOIN hosts_resourcepool pool ON pool.id = total.pool_id ORDER BY 1, 2
"""
_DATABASE = """
SELECT pg_database_size(current_database()), (SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()),
  current_setting('max_connections')::int,
  (SELECT count(*) FROM events_lease WHERE starts_with(name, %(worker)s) AND expires_at > clock_timestamp())
"""


@dataclass(frozen=True)
class PoolFigures:
    """One pool. Times are epoch seconds; None: never. `hosts` and `tasks` count by state, all states named."""

    name: str
    passed_at: float | None
    pass_seconds: float | None
    changes: int  # that no pass has seen yet
    tasks: Mapping[str, int]
    wanted_slots: int  # by tasks that wait
    hosts: Mapping[str, int]
    slots: int
    usable_slots: int  # enabled, on hosts that are ready
    used_slots: int
    quarantined_slots: int  # out of use because of a fault
    burn_in_findings: int  # hosts whose last burn-in found something
    spare_hosts: int  # that the pool keeps for work whose host fails
    runs: int  # gang members that run
    newest_heartbeat: float | None
    oldest_heartbeat: float | None
    unshipped_bytes: float  # waiting on hosts
    shipped_bytes: float  # of those runs, stored


@dataclass(frozen=True)
class TableFigures:
    """One table of events, logs or metrics."""

    name: str
    inserted_rows: int
    size_bytes: int


@dataclass(frozen=True)
class Figures:
    pools: list[PoolFigures]
    tables: list[TableFigures]
    slot_time: list[_Row]  # pool, part (jobs.time_parts), slot-seconds of attempts that have ended
    database_bytes: int
    connections: int
    max_connections: int
    workers: int  # that took a message of their own lately (dispatch.watching.canary)


def read() -> Figures:
    """All of it. Raises django.db.OperationalError when a statement takes too long."""
    with _bounded() as rows:
        pools = _pools(rows)
        tables = [TableFigures(*row) for row in rows(_TABLES)]
        return Figures(pools, tables, rows(_SLOT_TIME), *rows(_DATABASE)[0])


def pools(*, with_runs: bool = True) -> list[PoolFigures]:
    """The pools alone, by name; without `with_runs`, what their runs do is left out. Raises as `read` does."""
    with _bounded() as rows:
        return _pools(rows, with_runs)


@contextmanager
def _bounded() -> Iterator[_Rows]:
    """What gives the rows of a statement, each within STATEMENT_SECONDS."""
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute(f"SET LOCAL statement_timeout = '{STATEMENT_SECONDS}s'")

        def rows(statement: str) -> list[_Row]:
            cursor.execute(statement, {"removed": Host.Admission.REMOVED, "worker": leases.WORKER})
            return list(cursor.fetchall())

        yield rows


def _pools(rows: _Rows, with_runs: bool = True) -> list[PoolFigures]:
    tasks, hosts = rows(_TASKS), rows(_HOSTS)
    runs = {row[0]: row[1:] for row in rows(_RUNS)} if with_runs else {}
    found = burn_in.with_findings()
    return [_pool(row, tasks, hosts, runs, found.get(row[0], 0)) for row in rows(_POOLS)]


def _pool(
    row: _Row, tasks: list[_Row], hosts: list[_Row], runs: Mapping[str, _Row], burn_in_findings: int
) -> PoolFigures:
    name, passed_at, pass_seconds, changes, spare_hosts = row
    of_tasks = {state: (count, slots) for pool, state, count, slots in tasks if pool == name}
    of_hosts: dict[str, list[int]] = {}
    for pool, admission, contact, enabled, draining, *numbers in hosts:
        if pool == name:
            state = Host(admission=admission, contact=contact, enabled=enabled, draining=draining).state
            of_hosts[state] = [sum(each) for each in zip(of_hosts.get(state, [0] * 5), numbers, strict=True)]
    running, newest, oldest, unshipped, shipped = runs.get(name, (0, None, None, 0, 0))
    return PoolFigures(
        name=name,
        passed_at=passed_at,
        pass_seconds=pass_seconds,
        changes=changes,
        tasks={state: of_tasks.get(state, (0, 0))[0] for state in TASK_STATES},
        wanted_slots=int(of_tasks.get("waiting", (0, 0))[1]),
        hosts={state: of_hosts.get(state, [0])[0] for state in HOST_STATES},
        slots=int(sum(numbers[1] for numbers in of_hosts.values())),
        usable_slots=int(of_hosts.get("ready", [0, 0, 0])[2]),
        used_slots=int(sum(numbers[3] for numbers in of_hosts.values())),
        quarantined_slots=int(sum(numbers[4] for numbers in of_hosts.values())),
        burn_in_findings=burn_in_findings,
        spare_hosts=spare_hosts,
        runs=running,
        newest_heartbeat=newest,
        oldest_heartbeat=oldest,
        unshipped_bytes=float(unshipped),
        shipped_bytes=float(shipped),
    )
