"""Everything that a pass reads of one pool, by one SQL statement.

One statement is one snapshot, whatever commits meanwhile (law 1). The transaction stays READ COMMITTED: the guarded
writes that follow look at the newest rows, where REPEATABLE READ would fail whole passes for rows that a runner has
touched, and a preview surveys what its own transaction has just edited. The rows come as JSON arrays, since one
statement can give several tables only so; 10,000 model instances alone would take longer than a pass may.

Jobs, tasks and slots are many and seldom change. Of these the statement can name the *versions* of all rows, and give
the columns of those alone that a process may not have yet (`dispatch.passes.kept_rows`). A version, the place and
`xmin` of a row, is that of one content: whoever changes a row writes another version, and no version comes twice
within the four billion transactions after which PostgreSQL numbers them again.
"""

from __future__ import annotations

import json
from collections.abc import Collection
from dataclasses import dataclass
from itertools import starmap
from typing import Any

from django.db import connection

from experiments.states import USABLE, CheckpointState
from hosts.login_accounts import MAY_BECOME_ROOT_SQL
from hosts.models import Host
from jobs.states import AllocationState, JobState, MemberState, Reason, TaskState

Row = list[Any]

#: states of a checkpoint from which its trial resumes, now or once it is uploaded
_SAVED = ", ".join(f"'{state}'" for state in sorted({*USABLE, CheckpointState.PARTIAL}))
#: why runs are stopped whose task waits for slots again
_WAITS_AGAIN = ", ".join(
    f"'{reason}'"
    for reason in (
        Reason.PREEMPTED, Reason.MAX_SLOTS_SET, Reason.WINDOW, Reason.HOST_FAULT, Reason.HANG, Reason.HANG_OF_HOST,
    )
)  # fmt: skip

#: a row `r` with its version, and how many transactions ago it was written
_VERSION = "r.*, r.ctid::text || r.xmin AS version, age(r.xmin) AS age"
#: the age of the first transaction that the former survey may not have seen; without one, every row is new
_AGE = f"coalesce(age(%(since)s::xid), {2**31 - 1})"
_IS_NEW = f"age <= {_AGE}"
_VERSIONS = "string_agg(version, ' ') FILTER (WHERE %(since)s::xid IS NOT NULL)"

#: Within this a version names one content of a row. VACUUM FULL and CLUSTER rewrite a table: a place then holds another
#: row of the same transaction.
_SERVER = (
    "concat_ws(' ', pg_postmaster_start_time(), pg_relation_filenode('hosts_slot'), pg_relation_filenode('jobs_job'), "
    "pg_relation_filenode('jobs_task'))"
)

# `open`, `active` and the states of tasks are what jobs/queue_order.py calls HOLDS, ACTIVE and WANTS. They are stated
# here again because a pass takes more than what stands in the queue: attempts of ended jobs still hold slots.
#
# Joins go by indexes, and `(… IN …) IS TRUE` is looked up in a hash: the planner, which knows nothing of CTEs and,
# after a burst of submissions, nothing of tables either, would otherwise compare every task with every job. OFFSET 0
# makes a look-up by key of what it would otherwise join by another index, comparing every row there with every attempt.
_READ = f"""
WITH host AS MATERIALIZED (
    SELECT * FROM hosts_host
    WHERE pool_id = %(pool)s AND admission IN ('{Host.Admission.READY}', '{Host.Admission.SUSPENDED}')
      AND transport <> '{Host.Transport.LOGIN}'
), open AS MATERIALIZED (
    SELECT * FROM jobs_allocation WHERE state <> '{AllocationState.TERMINATED}'
), attempt AS MATERIALIZED (
    SELECT * FROM open WHERE pool_id = %(pool)s
), active AS MATERIALIZED (
    SELECT {_VERSION} FROM jobs_job r WHERE pool_id = %(pool)s AND state = '{JobState.ACTIVE}'
), running AS MATERIALIZED (
    SELECT t.* FROM attempt
    CROSS JOIN LATERAL (SELECT {_VERSION} FROM jobs_task r WHERE id = attempt.task_id OFFSET 0) t
    WHERE t.state = '{TaskState.RUNNING}'
), job AS (
    SELECT * FROM active UNION ALL
    SELECT {_VERSION} FROM jobs_job r
    WHERE id = ANY(ARRAY(SELECT job_id FROM running WHERE (job_id IN (SELECT id FROM active)) IS NOT TRUE))
), task AS (
    SELECT {_VERSION}, (job_id IN (SELECT id FROM active WHERE {_IS_NEW})) IS TRUE AS of_new FROM jobs_task r
    WHERE state = '{TaskState.WAITING}' AND (job_id IN (SELECT id FROM active)) IS TRUE
    UNION ALL SELECT *, false FROM running
), slot AS (
    SELECT {_VERSION} FROM host JOIN hosts_slot r ON r.host_id = host.id
)
SELECT {_SERVER}, pg_snapshot_xmin(pg_current_snapshot())::xid::text,
  slots.versions, slots.new, jobs.versions, jobs.new, tasks.versions, tasks.new,
  (SELECT json_agg(json_build_array(
      id, name, enabled, draining, contact <> '{Host.Contact.REACHABLE}', admission = '{Host.Admission.SUSPENDED}',
      drain_cause = '{Host.Drain.FAILED_STARTS}', failed_starts_era, {MAY_BECOME_ROOT_SQL})
      ORDER BY name) FROM host)::text,
  (SELECT json_agg(json_build_array(m.host_id, m.allocation_id, hold.slots) ORDER BY m.id)
    FROM (SELECT member_id, array_agg(slot_id ORDER BY id) AS slots FROM jobs_slothold
          WHERE released_at IS NULL GROUP BY member_id) hold
    CROSS JOIN LATERAL (SELECT * FROM jobs_member WHERE id = hold.member_id OFFSET 0) m
    WHERE m.cleaning_since IS NULL)::text,
  (SELECT json_agg(json_build_array(m.host_id, m.allocation_id, m.state = '{MemberState.ENDED}') ORDER BY m.id)
    FROM open JOIN jobs_member m ON m.allocation_id = open.id WHERE m.slots = 0)::text,
  (SELECT json_agg(json_build_array(
      attempt.task_id, attempt.id, extract(epoch FROM assigned_at), extract(epoch FROM attempt.started_at),
      stop_kind <> '', stop_for_task, on_sufferance, asked_preempt_at IS NOT NULL,
      (SELECT extract(epoch FROM max(reported_at)) FROM experiments_checkpoint c
        WHERE c.trial_id = trial.id AND c.state IN ({_SAVED})),
      trial.progress, stop_reason IN ({_WAITS_AGAIN})))
    FROM attempt LEFT JOIN experiments_trial trial ON trial.task_id = attempt.task_id)::text,
  (SELECT json_agg(json_build_array(first_id, second_id)) FROM hosts_paircheck WHERE NOT ok)::text,
  (SELECT json_agg(json_build_array(hold.slot_id, j.kind, j.entity_id))
    FROM jobs_member m JOIN jobs_slothold hold ON hold.member_id = m.id AND hold.released_at IS NULL
    JOIN jobs_allocation a ON a.id = m.allocation_id JOIN jobs_task t ON t.id = a.task_id
    JOIN jobs_job j ON j.id = t.job_id
    WHERE m.cleaning_since IS NOT NULL)::text,
  (SELECT json_agg(id) FROM accounts_user WHERE unix_user = '')::text,
  (SELECT json_agg(json_build_array(
      d.job_id, d.label, d.condition,
      coalesce(e.state = '{TaskState.ENDED}', o.state = '{JobState.ENDED}', true)) ORDER BY d.id)
    FROM jobs_dependency d LEFT JOIN jobs_job o ON o.id = d.on_id LEFT JOIN jobs_task e ON e.id = d.element_id
    WHERE d.met_at IS NULL AND d.job_id IN (SELECT id FROM active))::text,
  (SELECT json_agg(name) FROM hosts_host WHERE pool_id = %(pool)s
    AND admission IN ('{Host.Admission.ADMITTING}', '{Host.Admission.FAILED}', '{Host.Admission.LOST}'))::text
FROM (SELECT {_VERSIONS} AS versions, json_agg(json_build_array(
      host_id, id, index, enabled AND NOT missing, draining,
      CASE WHEN outside <> '{{}}' THEN coalesce(nullif(outside->>'user', ''), 'someone') END, version))
      FILTER (WHERE {_IS_NEW})::text AS new FROM slot) slots,
  (SELECT {_VERSIONS} AS versions, json_agg(json_build_array(
      id, kind, entity_id, priority, position, extract(epoch FROM moved_at), weight, max_slots, preemptible, owner_id,
      name, elements, at_once, extract(epoch FROM deadline_at), usual_position, version))
      FILTER (WHERE {_IS_NEW})::text AS new FROM job) jobs,
  (SELECT {_VERSIONS} AS versions, json_agg(json_build_array(
      id, job_id, slots, extract(epoch FROM created_at), single_host, nullif(avoid_hosts, '[]'), max_time_seconds,
      run_count, blocked_by, extract(epoch FROM not_before), nullif(failed_starts, '[]'), nullif(only_hosts, '[]'),
      version)) FILTER (WHERE {_IS_NEW} OR of_new)::text AS new FROM task) tasks
"""


@dataclass(frozen=True, slots=True)
class PoolRows:
    """Each row's columns in order; times in epoch seconds, ids as the tables have them, UUIDs as text.

    hosts: id, name, enabled, draining, silent, suspended, drained for failed starts, their era, whether the login may
    become other accounts. slots: host, id, index, enabled, draining, outside. holds: host, allocation, slots, also of
    other pools. aux: host, allocation, ended: members without slots. jobs: id, kind, entity, priority, position, moved,
    weight, max_slots, preemptible, owner, name, elements of an array, how many of them run at once, deadline, position
    before its deadline moved it ahead. tasks: id, job, slots, created, single_host, avoid_hosts, max_time, run_count,
    blocked_by, not_before, failed_starts, only_hosts. attempts: task, id, assigned, started, stopping, stopping_for,
    on_sufferance, asked_preempt, last_saved, progress, whether its task waits again once it has stopped. bad_pairs:
    host, host. cleaned: slot, kind and entity of the job after which it is cleaned up. unlinked: ids of users without a
    linked account. depends: job, label and condition of what it waits for, whether that is over and will not do.
    unready: names of hosts that are still being added, failed to be, or are lost.
    """

    slots: Collection[Row]
    jobs: Collection[Row]
    tasks: Collection[Row]
    hosts: list[Row]
    holds: list[Row]
    aux: list[Row]
    attempts: list[Row]
    bad_pairs: list[Row]
    cleaned: list[Row]
    unlinked: list[int]
    depends: list[Row]
    unready: list[str]


@dataclass(frozen=True, slots=True)
class Versions:
    """The rows of one table by their versions: `all` there are, empty where all rows are `new`."""

    all: list[str]
    new: dict[str, Row]


@dataclass(frozen=True, slots=True)
class Read:
    """What one statement read. `server`: when PostgreSQL was started, as only one that runs on keeps its numbers.

    `since`: what is given to `read` next. `kept`: of the slots, the jobs and the tasks. `others`: the rows of the other
    tables in the order of `PoolRows`.
    """

    server: str
    since: str
    kept: tuple[Versions, Versions, Versions]
    others: list[list[Any]]


def read(pool_id: int, since: str | None = None) -> Read:
    """The rows as they stand at one moment; of jobs, tasks and slots those that a read which gave `since` may lack."""
    with connection.cursor() as cursor:
        cursor.execute(_READ, {"pool": pool_id, "since": since})
        server, now, *parts = cursor.fetchone()
    slots, jobs, tasks = starmap(_versions, (parts[0:2], parts[2:4], parts[4:6]))
    return Read(server, now, (slots, jobs, tasks), [json.loads(part) if part else [] for part in parts[6:]])


def _versions(listed: str | None, new: str | None) -> Versions:
    rows = json.loads(new) if new else []
    return Versions(listed.split(" ") if listed else [], {row.pop(): row for row in rows})
