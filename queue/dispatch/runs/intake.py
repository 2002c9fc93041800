"""Takes in what a runner ships: one batch of outbox records, applied in one transaction with the stream's offset."""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from django.conf import settings
from django.db import InterfaceError, OperationalError, connection, transaction
from django.db.models.functions import Now
from django.utils import timezone

from accounts.refusals import Refusal
from commands import services
from dispatch.runs import batches, kinds, log_policies, settle
from dispatch.runs.batches import Batch
from dispatch.runs.log_policies import PolicyMatch
from experiments.models import Experiment, Trial
from experiments.transitions import lock as lock_experiment
from hosts import observe
from hosts.models import Host
from jobs import leaving, rank_ends, transitions
from jobs.models import Allocation, Member
from jobs.states import AllocationState, StopKind
from logs import store as log_store
from logs import streams
from logs.lines import Block
from logs.streams import OffsetConflict
from metrics import sample_store, timing_store
from trainmaster.quantities import size

log = logging.getLogger(__name__)

#: Record kinds that change the trial or its attempt; a batch without them takes no lock on the experiment.
_STATEFUL = {"core", "state", "exit"}
#: Records of the launch modules -> whether the rank ended by itself, not because it was told to.
_RANK_ENDS = {"rank_failed": True, "rank_ended": False}
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
    if found is None and all(record.get("k") == "lines" for record in records):
        stored = _store_plain(member_id, batch.offset, batch.end, batch.blocks)
        if stored is not None:
            return stored
    with transaction.atomic():
        # the order of locks is the same everywhere: experiment, allocation, then stream and log
        stateful = found is not None or any(record.get("k") in _STATEFUL for record in records)
        trial = _trial_of_metrics(member_id, records) if stateful and found is None else None
        member = settle.lock(member_id) if stateful and not trial else _read(member_id)
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
    with transaction.atomic():
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
    if samples := _of_kind(records, "samples"):
        sample_store.store(task_id, host.pk, host.name, samples)
    if timings := _of_kind(records, "timings"):
        timing_store.store(task_id, host.name, timings)
    _apply(member, records, trial)


def _store_plain(member_id: int, offset: int, new_offset: int, blocks: Sequence[Block]) -> Intake | None:
    """A batch of nothing but lines, as most are, by two statements. None: it has to go the long way. Raises Over."""
    member = _read(member_id)
    _refuse_over(member.allocation)
    task_id, host = member.allocation.task_id, member.host.name
    if log_store.append_shipped(task_id, member, host, blocks, offset, new_offset) is None:
        return None
    _heard(member)
    return Intake(new_offset, *_orders_of(member.allocation))


def _heard(member: Member) -> None:
    """Its host has spoken, or the user who runs it (runs.detached), and its stream has moved: the member lives."""
    # the database's time: where the clock here differs, it is written with each batch
    heard = member.heartbeat_at
    if heard is None or not timedelta() <= timezone.now() - heard < _SIGN_EVERY:
        Member.objects.filter(pk=member.pk).update(heartbeat_at=Now())
    if member.host.transport != Host.Transport.NONE:
        observe.heartbeat_of(member.host)


#: Written out, since every batch comes by here: what the rows lack is read when it is asked for.
_READ = """
SELECT member.id, member.index, member.state, member.allocation_id, member.host_id, member.heartbeat_at,
  host.id, host.name, host.transport, host.last_heartbeat_at,
  allocation.id, allocation.task_id, allocation.state,
  allocation.stop_kind, allocation.stop_reason, allocation.stop_grace_seconds
FROM jobs_member member JOIN jobs_allocation allocation ON allocation.id = member.allocation_id
JOIN hosts_host host ON host.id = member.host_id WHERE member.id = %s
"""
_MEMBER_COLUMNS = ("id", "index", "state", "allocation_id", "host_id", "heartbeat_at")
_HOST_COLUMNS = ("id", "name", "transport", "last_heartbeat_at")
_ALLOCATION_COLUMNS = ("id", "task_id", "state", "stop_kind", "stop_reason", "stop_grace_seconds")


def _read(member_id: int) -> Member:
    """The member with its host and allocation. Raises Over when it was deleted with its experiment."""
    with connection.cursor() as cursor:
        cursor.execute(_READ, [member_id])
        row = cursor.fetchone()
    if row is None:
        raise Over("The run is over: it was deleted.")
    member = Member.from_db(connection.alias, _MEMBER_COLUMNS, row[:6])
    member.host = Host.from_db(connection.alias, _HOST_COLUMNS, row[6:10])
    member.allocation = Allocation.from_db(connection.alias, _ALLOCATION_COLUMNS, row[10:])
    return member


def _store_lines(member: Member, blocks: Sequence[Block], found: PolicyMatch | None) -> None:
    if not blocks:
        return
    if found:  # tasks are locked before the log
        log_policies.act(member, found)
    first, _ = log_store.append(member.allocation.task_id, member, member.host.name, blocks)
    if found:
        log_policies.write_down(member, found, blocks, first)


def _of_kind(records: Sequence[dict[str, Any]], kind: str) -> list[dict[str, Any]]:
    return [record for record in records if record.get("k") == kind]


def _apply(member: Member, records: Sequence[dict[str, Any]], trial: Trial | None) -> None:
    missing = sum(int(record.get("bytes") or 0) for record in _of_kind(records, "gap"))
    if missing:
        streams.count_missing(member.pk, missing)
    stateful = [record for record in records if record.get("k") in _STATEFUL]
    if not stateful:
        return
    if trial is None and any(record["k"] == "core" for record in stateful):
        trial = _trial(member)
    reporting = batches.Reporting(trial, member, stateful) if trial else None
    for place, record in enumerate(stateful):
        if reporting and reporting.is_done(place):
            continue
        if record["k"] == "core" and _rank_ended(member, record.get("d")):
            continue
        if record["k"] == "core" and reporting:
            reporting.apply(place)
        elif record["k"] == "core":
            _reported_to_service(member, record.get("d"))
        elif record["k"] == "state" and record.get("state") == "running":
            transitions.member_running(member, at=_time_of(member, record))
        elif record["k"] == "exit":
            if trial:  # what it reported before may have changed its allocation
                member.allocation = transitions.lock_allocation(member.allocation_id)
            _exited(member, record)


#: Written out, since metrics come with every other batch; what the rows lack is read when it is asked for.
_EXPERIMENT = """
SELECT experiment.id, experiment.state, experiment.best_trial_id, experiment.best_metric, experiment.unmanaged
FROM experiments_experiment experiment WHERE experiment.id = (
  SELECT trial.experiment_id FROM experiments_trial trial JOIN jobs_allocation allocation USING (task_id)
  JOIN jobs_member member ON member.allocation_id = allocation.id WHERE member.id = %s)
FOR NO KEY UPDATE OF experiment
"""
_EXPERIMENT_COLUMNS = (
    "id",
    "state",
    "best_trial_id",
    "best_metric",
    "unmanaged",
)  # in the order of the model, as `from_db` wants
#: A statement of its own, which sees what others have stored under the experiment's lock before.
_TRIAL = """
SELECT trial.id, trial.experiment_id, trial.task_id, trial.run_id, trial.steps_completed,
  trial.best_validation, trial.latest_validation, trial.summary_metrics, trial.searcher_metric
FROM experiments_trial trial JOIN jobs_allocation allocation USING (task_id)
JOIN jobs_member member ON member.allocation_id = allocation.id WHERE member.id = %s
"""
_TRIAL_COLUMNS = (
    "id", "experiment_id", "task_id", "run_id", "steps_completed",
    "best_validation", "latest_validation", "summary_metrics", "searcher_metric",
)  # fmt: skip


def _trial_of_metrics(member_id: int, records: Sequence[dict[str, Any]]) -> Trial | None:
    """The trial of a batch whose only reports are metrics, its experiment locked; None for any other batch.

    Its attempt cannot end meanwhile: only dispatch.runs.settle ends one, with the experiment locked. Nor has it ended
    before: whether it is over is read after this lock. So no more is locked.
    """
    for record in records:
        data = record.get("d")
        if record.get("k") in _STATEFUL and not (isinstance(data, dict) and data.get("type") == "metrics"):
            return None
    with connection.cursor() as cursor:
        cursor.execute(_EXPERIMENT, [member_id])
        row = cursor.fetchone()
        if row is None:
            return None
        experiment = Experiment.from_db(connection.alias, _EXPERIMENT_COLUMNS, row)
        cursor.execute(_TRIAL, [member_id])
        *plain, best, latest, summary, searcher_metric = cursor.fetchone()
    documents = [value and json.loads(value) for value in (best, latest, summary)]
    trial = Trial.from_db(connection.alias, _TRIAL_COLUMNS, [*plain, *documents, searcher_metric])
    trial.experiment = experiment
    return trial


def _trial(member: Member) -> Trial | None:
    """The trial that reports, its experiment locked; None for other kinds of work."""
    trial = Trial.objects.select_related("task").filter(task_id=member.allocation.task_id).first()
    if trial:
        trial.experiment = lock_experiment(trial.experiment_id)
    return trial


def _rank_ended(member: Member, data: object) -> bool:
    """Keep how a rank ended, of any kind of work. False: the report is another one, or none that can be read."""
    kind = data.get("type") if isinstance(data, dict) else None
    if not isinstance(data, dict) or kind not in _RANK_ENDS:
        return False
    try:
        rank_ends.keep(member, data, failed=_RANK_ENDS[kind])
    except (KeyError, TypeError, ValueError):
        return False
    return True


def _reported_to_service(member: Member, data: object) -> None:
    """A record of a task that people use; one that cannot be kept is named in the log and left behind."""
    try:
        with transaction.atomic():
            services.reported(member.allocation.task_id, data)
    except (OperationalError, InterfaceError):
        raise
    except Exception as error:  # whatever its program may have written
        line = batches.left_out(ValueError(f"{type(error).__name__}: {error}"))
        log_store.append(member.allocation.task_id, member, member.host.name, batches.blocks([line]))


def _exited(member: Member, record: dict[str, Any]) -> None:
    """The last record: everything before it is stored, so the end may be shown."""
    streams.close(member.pk)
    failure, kills = record.get("first_failure"), record.get("oom_kills")
    port = record.get("port_in_use")
    settle.member_exited(
        member,
        code=record.get("code"),
        signal=record.get("signal"),
        ended_at=_stamp(record),
        first_failure=failure if isinstance(failure, dict) else None,
        boot_id=str(record.get("boot_id") or ""),
        oom_kills=kills if isinstance(kills, dict) else None,
        port_in_use=port if isinstance(port, int) else None,
        storage_fault=str(record.get("storage_fault") or ""),
        image_fault=str(record.get("image_fault") or ""),
        left=_left(record.get("left")),
    )


def _left(pids: object) -> list[dict[str, Any]] | None:
    """The processes of the run that have survived SIGKILL; older runners do not say."""
    return [{"pid": pid} for pid in pids if isinstance(pid, int)] or None if isinstance(pids, list) else None


def _stamp(record: dict[str, Any]) -> float | None:
    stamp = record.get("t")
    return stamp if isinstance(stamp, int | float) else None


def _time_of(member: Member, record: dict[str, Any]) -> datetime | None:
    """When it was on its host, in the server's time; None where it does not say."""
    stamp = _stamp(record)
    return None if stamp is None else member.server_time(stamp)


def signals(member_id: int, allocation_id: str, have: frozenset[str] = frozenset()) -> Intake:
    """What is asked of the run now, for the long poll. Raises Over.

    `have` are the orders that the runner knows already: that it names "preempt" is the proof that it was told.
    """
    allocation = Allocation.objects.get(pk=allocation_id)
    _refuse_over(allocation)
    if "preempt" in have and allocation.stop_kind == StopKind.PREEMPT and allocation.stop_deadline_at is None:
        leaving.preempt_told([member_id])
    return Intake(-1, *_orders_of(allocation))


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
