"""Everything that a pass reads of one pool, by one SQL statement.

One statement is one snapshot, whatever commits meanwhile (law 1). The transaction stays READ COMMITTED: the guarded
writes that follow look at the newest rows, where REPEATABLE READ would fail whole passes for rows that a runner has
touched, and a preview surveys what its own transaction has just edited. The rows come as JSON arrays, since one
statement can give several tables only so; 10,000 model instances alone would take longer than a pass may.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
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
    f"'{reason}'" for reason in (Reason.PREEMPTED, Reason.MAX_SLOTS_SET, Reason.WINDOW, Reason.HOST_FAULT)
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
), open AS MATERIALIZED (
    SELECT * FROM jobs_allocation WHERE state <> '{AllocationState.TERMINATED}'
), attempt AS MATERIALIZED (
    SELECT * FROM open WHERE pool_id = %(pool)s
), active AS MATERIALIZED (
    SELECT * FROM jobs_job WHERE pool_id = %(pool)s AND state = '{JobState.ACTIVE}'
), running AS MATERIALIZED (
    SELECT t.* FROM attempt CROSS JOIN LATERAL (SELECT * FROM jobs_task WHERE id = attempt.task_id OFFSET 0) t
    WHERE t.state = '{TaskState.RUNNING}'
)
SELECT json_build_array(
  (SELECT json_agg(json_build_array(
      id, name, enabled, draining, contact <> '{Host.Contact.REACHABLE}', admission = '{Host.Admission.SUSPENDED}',
      drain_cause = '{Host.Drain.FAILED_STARTS}', failed_starts_era, {MAY_BECOME_ROOT_SQL})
      ORDER BY name) FROM host),
  (SELECT json_agg(json_build_array(
      s.host_id, s.id, s.index, s.enabled AND NOT s.missing, s.draining,
      CASE WHEN s.outside <> '{{}}' THEN coalesce(nullif(s.outside->>'user', ''), 'someone') END) ORDER BY s.index)
    FROM host JOIN hosts_slot s ON s.host_id = host.id),
  (SELECT json_agg(json_build_array(hold.slot_id, m.host_id, m.allocation_id) ORDER BY hold.id)
    FROM jobs_slothold hold
    CROSS JOIN LATERAL (SELECT * FROM jobs_member WHERE id = hold.member_id OFFSET 0) m
    WHERE hold.released_at IS NULL AND m.cleaning_since IS NULL),
  (SELECT json_agg(json_build_array(m.host_id, m.allocation_id, m.state = '{MemberState.ENDED}') ORDER BY m.id)
    FROM open JOIN jobs_member m ON m.allocation_id = open.id WHERE m.slots = 0),
  (SELECT json_agg(json_build_array(
      id, kind, entity_id, priority, position, extract(epoch FROM moved_at), weight, max_slots, preemptible, owner_id,
      name, elements, at_once))
    FROM (SELECT * FROM active UNION ALL SELECT j.* FROM running JOIN jobs_job j ON j.id = running.job_id) job),
  (SELECT json_agg(json_build_array(
      id, job_id, slots, extract(epoch FROM created_at), single_host, nullif(avoid_hosts, '[]'), max_time_seconds,
      run_count, blocked_by, extract(epoch FROM not_before), nullif(failed_starts, '[]'), nullif(only_hosts, '[]')))
    FROM (SELECT * FROM jobs_task
            WHERE state = '{TaskState.WAITING}' AND (job_id IN (SELECT id FROM active)) IS TRUE
          UNION ALL SELECT * FROM running) task),
  (SELECT json_agg(json_build_array(
      attempt.task_id, attempt.id, extract(epoch FROM assigned_at), extract(epoch FROM attempt.started_at),
      stop_kind <> '', stop_for_task, on_sufferance, asked_preempt_at IS NOT NULL,
      (SELECT extract(epoch FROM max(reported_at)) FROM experiments_checkpoint c
        WHERE c.trial_id = trial.id AND c.state IN ({_SAVED})),
      trial.progress, stop_reason IN ({_WAITS_AGAIN})))
    FROM attempt LEFT JOIN experiments_trial trial ON trial.task_id = attempt.task_id),
  (SELECT json_agg(json_build_array(first_id, second_id)) FROM hosts_paircheck WHERE NOT ok),
  (SELECT json_agg(json_build_array(hold.slot_id, j.kind, j.entity_id))
    FROM jobs_member m JOIN jobs_slothold hold ON hold.member_id = m.id AND hold.released_at IS NULL
    JOIN jobs_allocation a ON a.id = m.allocation_id JOIN jobs_task t ON t.id = a.task_id
    JOIN jobs_job j ON j.id = t.job_id
    WHERE m.cleaning_since IS NOT NULL),
  (SELECT json_agg(id) FROM accounts_user WHERE unix_user = ''),
  (SELECT json_agg(json_build_array(
      d.job_id, d.label, d.condition,
      coalesce(e.state = '{TaskState.ENDED}', o.state = '{JobState.ENDED}', true)) ORDER BY d.id)
    FROM jobs_dependency d LEFT JOIN jobs_job o ON o.id = d.on_id LEFT JOIN jobs_task e ON e.id = d.element_id
    WHERE d.met_at IS NULL AND d.job_id IN (SELECT id FROM active)),
  (SELECT json_agg(name) FROM hosts_host WHERE pool_id = %(pool)s
    AND admission IN ('{Host.Admission.ADMITTING}', '{Host.Admission.FAILED}', '{Host.Admission.LOST}'))
)::text
"""


@dataclass(frozen=True, slots=True)
class PoolRows:
    """Each row's columns in order; times in epoch seconds, ids as the tables have them, UUIDs as text.

    hosts: id, name, enabled, draining, silent, suspended, drained for failed starts, their era, whether the login may
    become other accounts. slots: host, id, index,
    enabled, draining, outside. holds: slot, host, allocation, also of other pools. aux: host, allocation, ended:
    members without slots. jobs: id, kind, entity, priority, position, moved, weight, max_slots, preemptible, owner,
    name, elements of an array, how many of them run at once. tasks: id, job, slots, created, single_host, avoid_hosts,
    max_time, run_count, blocked_by, not_before, failed_starts, only_hosts. attempts: task, id, assigned, started,
    stopping, stopping_for, on_sufferance, asked_preempt, last_saved, progress, whether its task waits again once it
    has stopped. bad_pairs: host, host. cleaned: slot, kind and entity of the job after which it is cleaned up.
    unlinked: ids of users without a linked account.
    depends: job, label and condition of what it waits for, whether that is over and will not do. unready: names of
    hosts that are still being added, failed to be, or are lost.
    """

    hosts: list[Row]
    slots: list[Row]
    holds: list[Row]
    aux: list[Row]
    jobs: list[Row]
    tasks: list[Row]
    attempts: list[Row]
    bad_pairs: list[Row]
    cleaned: list[Row]
    unlinked: list[int]
    depends: list[Row]
    unready: list[str]


def read(pool_id: int) -> PoolRows:
    """The rows as they stand at one moment."""
    with connection.cursor() as cursor:
        cursor.execute(_READ, {"pool": pool_id})
        parts = json.loads(cursor.fetchone()[0])
    return PoolRows(*(part or [] for part in parts))
