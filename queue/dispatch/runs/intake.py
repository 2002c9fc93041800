"""Takes in what a runner ships: one batch of outbox records, applied in one transaction with the stream's offset."""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from django.conf import settings
from django.db import InterfaceError, OperationalError, connection, transaction
from django.db.models.functions import Now
from django.utils import timezone

from accounts.refusals import Refusal
from dispatch.runs import batches, effects, kinds, log_policies, settle
from dispatch.runs.batches import Batch
from dispatch.runs.log_policies import PolicyMatch
from events.prepared import Prepared, cursor
from events.record import together
from experiments import metric_reports
from experiments.models import Experiment, Trial
from hosts import observe
from hosts.models import Host
from jobs import leaving, transitions
from jobs.models import Allocation, Member
from jobs.states import AllocationState, MemberState, StopKind
from logs import store as log_store
from logs import streams
from logs.lines import Block
from logs.streams import OffsetConflict
from metrics import sample_store, timing_store
from trainmaster.quantities import size

log = logging.getLogger(__name__)

#: A sign of life is written down at most so often; a runner's heartbeats come every few seconds anyway.
_SIGN_EVERY = timedelta(seconds=5)


@dataclass(frozen=True)
class Intake:
    """The answer to the runner: how far the stream is stored, and what is asked of the run."""

    offset: int
    preempt: dict[str, Any] | None
    stop: dict[str, Any] | None


class Over(Exception):
    """The allocation is over: a runner whose ranks live stops them, any other ends its shipping."""


#: what is raised for other reasons than what a record says
_NOT_OF_THE_BATCH = (Refusal, OffsetConflict, Over, OperationalError, InterfaceError)
#: how long the records of a batch are tried one by one
TRIED_SECONDS = 5.0


def store(member_id: int, offset: int, body: bytes) -> Intake:
    """Store one batch that starts at `offset`. Raises logs.streams.OffsetConflict, Refusal, Over."""
    records = batches.parse(body)
    try:
        return _store(member_id, offset, body, records)
    except _NOT_OF_THE_BATCH:
        raise
    except Exception:  # whatever a job may have written into its runner's outbox
        log.exception("a batch of member %s could not be stored as it is", member_id)
    try:
        return _store(member_id, offset, body, _without_spoiled(member_id, records))
    except _NOT_OF_THE_BATCH:
        raise
    except Exception as error:  # together they break what none breaks alone
        log.exception("a batch of member %s cannot be stored", member_id)
        sentence = f"{len(records):,} records could not be stored: {type(error).__name__}"
        return _store(member_id, offset, body, [batches.left_out(ValueError(sentence))])


def _without_spoiled(member_id: int, records: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """The records, each that cannot be stored replaced by a line of the log that says so. All is undone again.

    Others wait for the rows that are locked here, so it takes no longer than TRIED_SECONDS; what has not been tried by
    then is left out.
    """
    kept: list[dict[str, Any]] = []
    until = time.monotonic() + TRIED_SECONDS
    with transaction.atomic():
        member = settle.lock(member_id)
        for record in records:
            if time.monotonic() > until:
                rest = len(records) - len(kept)
                kept.append(
                    batches.left_out(ValueError(f"{rest:,} records behind others that cannot be read"))
                )
                break
            try:
                with transaction.atomic():
                    _take_in(member, [record], batches.blocks([record]), None, None)
                kept.append(record)
            except _NOT_OF_THE_BATCH:
                raise
            except Exception as error:
                kept.append(batches.left_out(ValueError(f"{type(error).__name__}: {error}")))
        transaction.set_rollback(True)
    return kept


def _within_limit(blocks: list[Block], offset: int, end: int) -> list[Block]:
    """The lines of a batch: none beyond LOG_BYTES_PER_RUN, but where that is reached, a line that says so."""
    most = settings.LOG_BYTES_PER_RUN
    if end <= most:
        return blocks
    sentence = f"[this run has shipped {size(most)}, as much as a run may: its further lines are not kept]"
    return batches.said(sentence) if offset <= most else []


def _store(member_id: int, offset: int, body: bytes, records: list[dict[str, Any]]) -> Intake:
    blocks = _within_limit(batches.blocks(records), offset, offset + len(body))
    found = log_policies.look(member_id, blocks)
    batch = Batch(offset, body, records, blocks, found)
    try:
        return _store_open(member_id, batch)
    except Over:
        return _store_late(member_id, batch)


def _store_open(member_id: int, batch: Batch) -> Intake:
    """A batch of an attempt that is not over. Raises OffsetConflict, Over."""
    found, records = batch.found, batch.records
    if found is None and (stored := _store_plain(member_id, batch)) is not None:
        return stored
    with transaction.atomic(), together():
        # the order of locks is the same everywhere: experiment, allocation, then stream and log
        stateful = found is not None or any(effects.is_stateful(record) for record in records)
        trial = effects.trial_of_metrics(member_id, records) if stateful and found is None else None
        member = settle.lock(member_id) if stateful and not trial else _locked(member_id, trial)
        _refuse_over(member.allocation)
        streams.advance(member.pk, batch.offset, batch.end)
        _take_in(member, records, batch.blocks, found, trial)
    if found:
        log_policies.done(member_id, found)
    _heard(member)
    return Intake(batch.end, *_orders_of(member.allocation))


def _store_late(member_id: int, batch: Batch) -> Intake:
    """A batch of an attempt that is over: the drain took longer than the end was waited for, or an answer was lost.

    What is stored already is said to be stored, and the rest up to the exit record is taken in unless the task has a
    newer attempt. Where nobody knows that the ranks have ended, the runner is refused whatever it brings: that stops
    them (law 3). Raises OffsetConflict, Over.
    """
    _read(member_id)
    with transaction.atomic(), together():
        member = _lock_with_task(member_id)
        if not member.exited:
            _refuse_over(member.allocation)
        stored = streams.stored(member_id)
        if batch.end <= stored:
            return Intake(stored, None, None)
        if streams.is_closed(member_id):
            raise Over(f"The stream of {member.run_key} ended with its exit record.")
        if batch.offset == stored and _is_superseded(member.allocation):
            raise Over(f"Allocation {member.allocation_id} is over, and its task has a newer one.")
        streams.advance(member.pk, batch.offset, batch.end)
        _take_in(member, batch.records, batch.blocks, batch.found, None)
    if batch.found:
        log_policies.done(member_id, batch.found)
    _heard(member)
    return Intake(batch.end, None, None)


def _is_superseded(allocation: Allocation) -> bool:
    return Allocation.objects.filter(task_id=allocation.task_id, number__gt=allocation.number).exists()


def _lock_with_task(member_id: int) -> Member:
    """The member of an attempt that is over, locked with its task, so that no newer one begins meanwhile."""
    allocation_id, task_id = Member.objects.values_list("allocation_id", "allocation__task_id").get(
        pk=member_id
    )
    kinds.outcomes_of(allocation_id).lock_for(allocation_id)
    transitions.lock_tasks([task_id])
    return transitions.lock_member(member_id)


def _take_in(
    member: Member,
    records: Sequence[dict[str, Any]],
    blocks: Sequence[Block],
    found: PolicyMatch | None,
    trial: Trial | None,
) -> None:
    """Everything in some records, of which `blocks` are the log; in the caller's transaction."""
    _store_lines(member, blocks, found)
    task_id, host = member.allocation.task_id, member.host
    if samples := effects.of_kind(records, "samples"):
        sample_store.store(task_id, host.pk, host.name, samples)
    if timings := effects.of_kind(records, "timings"):
        timing_store.store(task_id, host.name, timings)
    effects.apply(member, records, trial)


def _store_plain(member_id: int, batch: Batch) -> Intake | None:
    """A batch of nothing but lines, or nothing but columns of metrics, as most are, by two statements.

    None: it has to go the long way. Raises Over.
    """
    if all(record.get("k") == "lines" for record in batch.records):
        member = _read(member_id)
        _refuse_over(member.allocation)
        task_id, host = member.allocation.task_id, member.host.name
        placed = log_store.append_shipped(task_id, member, host, batch.blocks, batch.offset, batch.end)
        is_stored = placed is not None
    elif batch.columns is not None and not batch.blocks:
        member, trial = _read_with_trial(member_id)
        _refuse_over(member.allocation)
        is_stored = trial is not None and metric_reports.store_shipped(
            trial, batch.columns, member_id, batch.offset, batch.end
        )
    else:
        return None
    if not is_stored:
        return None
    _heard(member)
    return Intake(batch.end, *_orders_of(member.allocation))


def _heard(member: Member) -> None:
    """Its host has spoken, or the user who runs it (runs.detached), and its stream has moved: the member lives."""
    # the database's time: where the clock here differs, it is written with each batch
    heard = member.heartbeat_at
    is_due = heard is None or not timedelta() <= timezone.now() - heard < _SIGN_EVERY
    if is_due and member.state != MemberState.ENDED:  # nobody looks at the signs of life of an ended member
        Member.objects.filter(pk=member.pk).update(heartbeat_at=Now())
    if member.host.transport != Host.Transport.NONE:
        observe.heartbeat_of(member.host)


#: Written out, since every batch comes by here: what the rows lack is read when it is asked for.
_READ = """
SELECT member.id, member.index, member.state, member.allocation_id, member.host_id, member.heartbeat_at,
  host.id, host.name, host.transport, host.last_heartbeat_at,
  allocation.id, allocation.task_id, allocation.state,
  allocation.stop_kind, allocation.stop_reason, allocation.stop_grace_seconds {more}
FROM jobs_member member JOIN jobs_allocation allocation ON allocation.id = member.allocation_id
JOIN hosts_host host ON host.id = member.host_id {joined} WHERE member.id = %s
"""
_READ_ALONE = _READ.format(more="", joined="")
_READ_SHARED = f"{_READ_ALONE} FOR SHARE OF allocation"
_READ_TO_REPORT = f"{_READ_ALONE} FOR NO KEY UPDATE OF allocation"
#: A batch of metrics reads its trial by the same statement, as `transitions.read_to_report` does.
_READ_WITH_TRIAL = _READ.format(
    more=""", trial.id, trial.experiment_id, trial.task_id, trial.run_id, trial.steps_completed,
  trial.summary_metrics, trial.xmin::text, experiment.id, experiment.unmanaged""",
    joined="""LEFT JOIN experiments_trial trial ON trial.task_id = allocation.task_id
LEFT JOIN experiments_experiment experiment ON experiment.id = trial.experiment_id""",
)
_TRIAL_COLUMNS = ("id", "experiment_id", "task_id", "run_id", "steps_completed", "summary_metrics")
_MEMBER_COLUMNS = ("id", "index", "state", "allocation_id", "host_id", "heartbeat_at")
_HOST_COLUMNS = ("id", "name", "transport", "last_heartbeat_at")
_ALLOCATION_COLUMNS = ("id", "task_id", "state", "stop_kind", "stop_reason", "stop_grace_seconds")
_OF_MEMBER = len(_MEMBER_COLUMNS) + len(_HOST_COLUMNS) + len(_ALLOCATION_COLUMNS)


def _read(member_id: int) -> Member:
    """The member with its host and allocation. Raises Over when it was deleted with its experiment."""
    return _member_of(_row(_READ_ALONE, member_id))


def _locked(member_id: int, trial: Trial | None) -> Member:
    """As `_read`, with its attempt locked, so that it does not end before the batch is stored.

    Members that ship lines share the lock. Metrics take it alone: the search may stop the attempt, and by then this
    transaction may hold the log for which the other members wait.
    """
    return _member_of(_row(_READ_TO_REPORT if trial else _READ_SHARED, member_id))


def _read_with_trial(member_id: int) -> tuple[Member, Trial | None]:
    """As `_read`, with the trial that reports, which is not locked; None for other kinds of work."""
    row = _row(_READ_WITH_TRIAL, member_id)
    *plain, summary, version, experiment_id, unmanaged = row[_OF_MEMBER:]
    if experiment_id is None:
        return _member_of(row), None
    trial = Trial.from_db(connection.alias, _TRIAL_COLUMNS, [*plain, json.loads(summary)])
    trial.version = version  # type: ignore[attr-defined]
    trial.experiment = Experiment.from_db(connection.alias, ("id", "unmanaged"), (experiment_id, unmanaged))
    return _member_of(row), trial


def _row(statement: str, member_id: int) -> Sequence[Any]:
    with cursor() as asks:
        asks.execute(statement, [member_id])
        row: Sequence[Any] | None = asks.fetchone()
    if row is None:
        raise Over("The run is over: it was deleted.")
    return row


def _member_of(row: Sequence[Any]) -> Member:
    member = Member.from_db(connection.alias, _MEMBER_COLUMNS, row[:6])
    member.host = Host.from_db(connection.alias, _HOST_COLUMNS, row[6:10])
    member.allocation = Allocation.from_db(connection.alias, _ALLOCATION_COLUMNS, row[10:_OF_MEMBER])
    return member


def _store_lines(member: Member, blocks: Sequence[Block], found: PolicyMatch | None) -> None:
    if not blocks:
        return
    if found:  # tasks are locked before the log
        log_policies.act(member, found)
    first, _ = log_store.append(member.allocation.task_id, member, member.host.name, blocks)
    if found:
        log_policies.write_down(member, found, blocks, first)


def signals(member_id: int, allocation_id: str, have: frozenset[str] = frozenset()) -> Intake:
    """What is asked of the run now, for the long poll. Raises Over.

    `have` are the orders that the runner knows already: that it names "preempt" is the proof that it was told.
    """
    allocation = _orders.find(allocation_id)
    if allocation is None:
        raise Over("The run is over: it was deleted.")
    _refuse_over(allocation)
    if "preempt" in have and allocation.stop_kind == StopKind.PREEMPT and allocation.stop_deadline_at is None:
        leaving.preempt_told([member_id])
    return Intake(-1, *_orders_of(allocation))


_orders = Prepared(
    lambda: Allocation.objects.only(
        "state", "stop_kind", "stop_reason", "stop_grace_seconds", "stop_deadline_at"
    ),
    "pk",
    "no allocation",
)


def _refuse_over(allocation: Allocation) -> None:
    if allocation.state == AllocationState.TERMINATED:
        raise Over(f"Allocation {allocation.pk} is over.")


def _orders_of(allocation: Allocation) -> tuple[dict[str, Any] | None, dict[str, Any] | None]:
    return orders(allocation.stop_kind, allocation.stop_reason, allocation.stop_grace_seconds)


def orders(
    stop_kind: str, reason: str, grace_seconds: float | None
) -> tuple[dict[str, Any] | None, dict[str, Any] | None]:
    """(preempt, stop) as a runner is told them."""
    if stop_kind == StopKind.STOP:
        return None, {"grace_seconds": grace_seconds, "reason": str(reason)}
    if stop_kind == StopKind.PREEMPT:
        return {"reason": str(reason)}, None
    return None, None
