"""Everything that a pass reads of one pool, by one SQL statement.

One statement is one snapshot, whatever commits meanwhile (law 1). The transaction stays READ COMMITTED: the guarded
writes that follow look at the newest rows, where REPEATABLE READ would fail whole passes for rows that a runner has
touched, and a preview surveys what its own transaction has just edited. The rows come as JSON arrays, since one
statement can give several tables only so; 10,000 model instances alone would take longer than a pass may.

Tasks, slots and what holds them are many and seldom change. They are compared by blocks: the statement sums up the
*versions* of all rows of a block, and gives the rows of those blocks alone whose sum is another than that which a
process has (`dispatch.passes.kept_rows`). A version, the place and `xmin` of a row, is that of one content: whoever
changes a row writes another version, and no version comes twice within the four billion transactions after which
PostgreSQL numbers them again.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Sequence
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
    f"'{reason}'"
    for reason in (
        Reason.PREEMPTED, Reason.MAX_SLOTS_SET, Reason.WINDOW, Reason.HOST_FAULT, Reason.HANG, Reason.HANG_OF_HOST,
    )
)  # fmt: skip

#: columns of a task and its job; in the row of an attempt its own follow
OF_TASK = 27
#: what is compared by blocks: waiting tasks with their jobs, attempts with theirs, slots, what is held, and hosts
TABLES = ("wait", "run", "slot", "hold", "host")
#: blocks of a table; a row is in that which the hash of its key says
BLOCKS = 1024


def _written(row: str) -> str:
    """The transaction that wrote a row, counted from the first one."""
    return f"(age({row}.xmin)::bigint - (SELECT age('3'::xid)))"


def _version(row: str) -> str:
    """A number for the place and the writing transaction of a row."""
    return f"hashtidextended({row}.ctid, {_written(row)})"


def _with(version: str, place: str, written: str) -> str:
    """The version of two rows: as the seed all 64 bits of the other's count, where hashing a number folds it to 32."""
    return f"hashtidextended({place}, {written} # {version})"


def _block(key: str, hashed_by: str) -> str:
    return f"{hashed_by}({key}) & {BLOCKS - 1}"


def _differing(name: str) -> str:
    """A CTE of the blocks whose sum is not the one that was given; NULL is that of a block without rows."""
    return f"""{name}_block AS MATERIALIZED (
    SELECT block, now.sum FROM (SELECT block, bit_xor(version) AS sum FROM {name}_version GROUP BY block) now
    FULL JOIN (SELECT place - 1 AS block, sum FROM unnest(%({name})s::bigint[]) WITH ORDINALITY kept (sum, place)
      WHERE sum IS NOT NULL) kept USING (block)
    WHERE now.sum IS DISTINCT FROM kept.sum
)"""


def _sums(name: str) -> str:
    return f"(SELECT json_agg(json_build_array(block, sum)) FROM {name}_block)::text"


#: Another one whenever PostgreSQL starts: after a crash, which leaves the first as it is but throws statistics away, it
#: may give the numbers of transactions again that it had not stored.
STARTED = "pg_postmaster_start_time(), pg_stat_get_bgwriter_stat_reset_time()"
#: Within this a version names one content of a row. VACUUM FULL and CLUSTER rewrite a table: a place then holds another
#: row of the same transaction.
_SERVER = "concat_ws(' ', {}, {})".format(
    STARTED,
    ", ".join(
        f"pg_relation_filenode('{table}')"
        for table in ("hosts_host", "hosts_slot", "jobs_job", "jobs_task", "jobs_slothold", "jobs_member")
    ),
)

_TASK = """t.id, t.job_id, t.slots, extract(epoch FROM t.created_at), t.single_host, nullif(t.avoid_hosts, '[]'),
      t.max_time_seconds, t.run_count, t.blocked_by, extract(epoch FROM t.not_before), nullif(t.failed_starts, '[]'),
      nullif(t.only_hosts, '[]'), t.recovers"""
_JOB = """j.kind, j.entity_id, j.priority, j.position, extract(epoch FROM j.moved_at), j.weight, j.max_slots,
      j.preemptible, j.owner_id, j.name, j.elements, j.at_once, extract(epoch FROM j.deadline_at), j.usual_position"""

# `open`, `active` and the states of tasks are what jobs/queue_order.py calls HOLDS, ACTIVE and WANTS. They are stated
# here again because a pass takes more than what stands in the queue: attempts of ended jobs still hold slots.
#
# Joins go by indexes, and `(… IN …) IS TRUE` is looked up in a hash, as the planner, which knows nothing of CTEs and,
# after a burst of submissions, nothing of tables either, would otherwise compare every task with every job. OFFSET 0
# makes a look-up by key of what it would otherwise join by another index, comparing every row there with every attempt.
# A FULL JOIN can only be a hash or merge join, and `num_nulls` does not let it become another kind.
_READ = f"""
WITH host_version AS MATERIALIZED (
    SELECT r.id, r.ctid AS place, {_block("r.id", "uuid_hash")} AS block, {_version("r")} AS version FROM hosts_host r
    WHERE pool_id = %(pool)s AND admission IN ('{Host.Admission.READY}', '{Host.Admission.SUSPENDED}')
      AND transport <> '{Host.Transport.LOGIN}'
), open AS MATERIALIZED (
    SELECT id, pool_id, task_id, assigned_at, started_at, stop_kind <> '' AS stopping, stop_for_task, on_sufferance,
      asked_preempt_at IS NOT NULL AS asked, stop_reason IN ({_WAITS_AGAIN}) AS again
    FROM jobs_allocation WHERE state <> '{AllocationState.TERMINATED}'
), active AS MATERIALIZED (
    SELECT r.id, r.ctid AS place, {_version("r")} AS version FROM jobs_job r
    WHERE pool_id = %(pool)s AND state = '{JobState.ACTIVE}'
), wait_version AS MATERIALIZED (
    SELECT task.place, job.place AS job_place, task.block,
      {_with("job.version", "task.place", "task.written")} AS version
    FROM (SELECT r.job_id, r.ctid AS place, {_block("r.id", "hashtext")} AS block, {_written("r")} AS written
      FROM jobs_task r WHERE state = '{TaskState.WAITING}') task
    FULL JOIN active job ON job.id = task.job_id WHERE num_nulls(task.place, job.place) = 0
), run AS MATERIALIZED (
    SELECT attempt.*, trial.progress,
      (SELECT max(reported_at) FROM experiments_checkpoint c
        WHERE c.trial_id = trial.id AND c.state IN ({_SAVED})) AS saved,
      task.place, job.place AS job_place,
      coalesce({_with("job.version", "task.place", "task.written")}, 0) AS pair
    FROM open attempt LEFT JOIN experiments_trial trial ON trial.task_id = attempt.task_id
    LEFT JOIN LATERAL (SELECT r.job_id, r.ctid AS place, {_written("r")} AS written FROM jobs_task r
      WHERE r.id = attempt.task_id AND r.state = '{TaskState.RUNNING}' OFFSET 0) task ON true
    LEFT JOIN LATERAL (SELECT r.ctid AS place, {_version("r")} AS version FROM jobs_job r
      WHERE r.id = task.job_id OFFSET 0) job ON true
    WHERE attempt.pool_id = %(pool)s
), run_version AS MATERIALIZED (
    SELECT run.*, {_block("id", "hashtext")} AS block, hash_record_extended(run, run.pair) AS version FROM run
), slot_version AS MATERIALIZED (
    SELECT r.ctid AS place, {_block("r.host_id", "uuid_hash")} AS block, {_version("r")} AS version
    FROM host_version host JOIN hosts_slot r ON r.host_id = host.id
), hold_version AS MATERIALIZED (
    SELECT hold.member_id, m.host_id, m.allocation_id, {_block("m.host_id", "uuid_hash")} AS block,
      {_with("hold.version", "m.ctid", _written("m"))} AS version
    FROM (SELECT r.member_id, bit_xor({_version("r")}) AS version FROM jobs_slothold r
          WHERE released_at IS NULL GROUP BY member_id) hold
    CROSS JOIN LATERAL (SELECT r.ctid, r.xmin, r.host_id, r.allocation_id, r.cleaning_since FROM jobs_member r
      WHERE id = hold.member_id OFFSET 0) m
    WHERE m.cleaning_since IS NULL
), {", ".join(map(_differing, TABLES))}
SELECT {_SERVER}, {", ".join(map(_sums, TABLES))},
  (SELECT json_agg(json_build_array({_TASK}, {_JOB}, block))
    FROM wait_version v JOIN jobs_task t ON t.ctid = v.place JOIN jobs_job j ON j.ctid = v.job_place
    WHERE (block IN (SELECT block FROM wait_block)) IS TRUE)::text,
  (SELECT json_agg(json_build_array(
      {_TASK}, {_JOB}, v.task_id, v.id, extract(epoch FROM v.assigned_at), extract(epoch FROM v.started_at),
      v.stopping, v.stop_for_task, v.on_sufferance, v.asked, extract(epoch FROM v.saved), v.progress, v.again, block))
    FROM run_version v LEFT JOIN jobs_task t ON t.ctid = v.place LEFT JOIN jobs_job j ON j.ctid = v.job_place
    WHERE (block IN (SELECT block FROM run_block)) IS TRUE)::text,
  (SELECT json_agg(json_build_array(
      host_id, id, index, enabled AND NOT missing, draining,
      CASE WHEN outside <> '{{}}' THEN coalesce(nullif(outside->>'user', ''), 'someone') END, block) ORDER BY index)
    FROM slot_version v JOIN hosts_slot s ON s.ctid = v.place
    WHERE (block IN (SELECT block FROM slot_block)) IS TRUE)::text,
  (SELECT json_agg(json_build_array(
      host_id, allocation_id, (SELECT array_agg(slot_id ORDER BY id) FROM jobs_slothold
        WHERE member_id = hold.member_id AND released_at IS NULL), member_id, block) ORDER BY member_id)
    FROM hold_version hold WHERE (block IN (SELECT block FROM hold_block)) IS TRUE)::text,
  (SELECT json_agg(json_build_array(
      hosts_host.id, name, enabled, draining, contact <> '{Host.Contact.REACHABLE}',
      admission = '{Host.Admission.SUSPENDED}', drain_cause = '{Host.Drain.FAILED_STARTS}', failed_starts_era,
      {MAY_BECOME_ROOT_SQL}, block))
    FROM host_version v JOIN hosts_host ON hosts_host.ctid = v.place
    WHERE (block IN (SELECT block FROM host_block)) IS TRUE)::text,
  (SELECT json_agg(json_build_array(m.host_id, m.allocation_id, m.state = '{MemberState.ENDED}') ORDER BY m.id)
    FROM open JOIN jobs_member m ON m.allocation_id = open.id WHERE m.slots = 0)::text,
  (SELECT json_agg(json_build_array(first_id, second_id)) FROM hosts_paircheck WHERE NOT ok)::text,
  (SELECT json_agg(json_build_array(hold.slot_id, j.kind, j.entity_id))
    FROM jobs_member m JOIN jobs_slothold hold ON hold.member_id = m.id AND hold.released_at IS NULL
    JOIN jobs_allocation a ON a.id = m.allocation_id JOIN jobs_task t ON t.id = a.task_id
    JOIN jobs_job j ON j.id = t.job_id
    WHERE m.cleaning_since IS NOT NULL)::text,
  (SELECT json_agg(id) FROM accounts_user WHERE unix_user = '')::text,
  (SELECT json_agg(json_build_array(
      coalesce(d.task_id, d.job_id::text), d.label, d.condition,
      coalesce(e.state = '{TaskState.ENDED}', o.state = '{JobState.ENDED}', true)) ORDER BY d.id)
    FROM jobs_dependency d LEFT JOIN jobs_job o ON o.id = d.on_id LEFT JOIN jobs_task e ON e.id = d.element_id
    WHERE d.met_at IS NULL AND d.job_id IN (SELECT id FROM active))::text,
  (SELECT json_agg(name) FROM hosts_host WHERE pool_id = %(pool)s
    AND admission IN ('{Host.Admission.ADMITTING}', '{Host.Admission.FAILED}', '{Host.Admission.LOST}'))::text
"""


@dataclass(frozen=True, slots=True)
class PoolRows:
    """Each row's columns in order; times in epoch seconds, ids as the tables have them, UUIDs as text.

    tasks: id, job, slots, created, single_host, avoid_hosts, max_time, run_count, blocked_by, not_before,
    failed_starts, only_hosts, recovers; then of their jobs kind, entity, priority, position, moved, weight, max_slots,
    preemptible, owner, name, elements of an array, how many of them run at once, deadline, position before its deadline
    moved it ahead. attempts: task, id, assigned, started, stopping, stopping_for, on_sufferance, asked_preempt,
    last_saved, progress, whether its task waits again once it has stopped. slots: host, id, index, enabled, draining,
    outside. holds: host, allocation, slots, member, also of other pools. hosts: id, name, enabled, draining, silent,
    suspended, drained for failed starts, their era, whether the login may become other accounts; by name. aux: host,
    allocation, ended: members without slots. bad_pairs: host, host. cleaned: slot, kind and entity of the job after
    which it is cleaned up. unlinked: ids of users without a linked account. depends: job, or the one element of it
    that waits, label and condition of what it waits for, whether that is over and will not do. unready: names of hosts
    that are still being added, failed to be, or are lost.
    """

    tasks: Collection[Row]
    attempts: Collection[Row]
    slots: Collection[Row]
    holds: Collection[Row]
    hosts: list[Row]
    aux: list[Row]
    bad_pairs: list[Row]
    cleaned: list[Row]
    unlinked: list[int]
    depends: list[Row]
    unready: list[str]


#: block -> its sum and its rows; None and none if it has no rows now
Blocks = dict[int, tuple[int | None, list[Row]]]


@dataclass(frozen=True, slots=True)
class Read:
    """What one statement read. `server`: as long as it is the same, a sum names the rows of a block.

    `blocks`: of each of TABLES those that differ from the sums that were given. `others`: the rows of the other tables
    in the order of `PoolRows`.
    """

    server: str
    blocks: tuple[Blocks, ...]
    others: list[list[Any]]


def read(pool_id: int, sums: Sequence[Sequence[int | None]] | None = None) -> Read:
    """The rows as they stand at one moment; of TABLES those of the blocks that have other sums than these."""
    values: dict[str, str | None] = dict.fromkeys(TABLES)
    for table, known in zip(TABLES, sums or (), strict=False):
        values[table] = "{" + ",".join(["NULL" if sum_ is None else str(sum_) for sum_ in known]) + "}"
    # planned each time: a plan that is kept does not see that a table has grown
    with connection.cursor() as asks:
        asks.execute(_READ, {"pool": pool_id, **values})
        server, *parts = asks.fetchone()
    found = [json.loads(part) if part else [] for part in parts]
    count = len(TABLES)
    return Read(server, tuple(map(_blocks, found[:count], found[count : 2 * count])), found[2 * count :])


def _blocks(sums: list[tuple[int, int | None]], rows: list[Row]) -> Blocks:
    blocks: Blocks = {block: (sum_, []) for block, sum_ in sums}
    for row in rows:
        blocks[row.pop()][1].append(row)
    return blocks
