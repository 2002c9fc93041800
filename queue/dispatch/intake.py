"""Takes in what a runner ships: one batch of outbox records, applied in one transaction with the stream's offset."""

from __future__ import annotations

import contextlib
import json
import logging
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from django.db import InterfaceError, OperationalError, transaction
from django.utils import timezone

from dispatch import settle
from events.announce import announce
from experiments import outcomes, reports
from experiments.models import Experiment, Trial
from hosts import observe
from jobs import transitions
from jobs.models import Allocation, Member
from jobs.states import AllocationState, MemberState, StopKind
from logs import pulse
from logs import store as log_store
from logs import streams
from logs.lines import SERVER, STDERR, STDOUT, Block, NewLine, blocks_of

log = logging.getLogger(__name__)

#: Record kinds that change the trial or its attempt; a batch without them takes no lock on the experiment.
_STATEFUL = {"core", "state", "exit"}
#: Records of the launch modules -> whether the rank ended by itself, not because it was told to.
_RANK_ENDS = {"rank_failed": True, "rank_ended": False}


@dataclass(frozen=True)
class Intake:
    """The answer to the runner: how far the stream is stored, and what is asked of the run."""

    offset: int
    preempt: dict[str, Any] | None
    stop: dict[str, Any] | None


class BadBatch(Exception):
    """The body is not whole records; the message is a sentence."""


class Over(Exception):
    """The allocation is over: the runner stops its ranks and ends."""


def store(member_id: int, offset: int, body: bytes) -> Intake:
    """Store one batch that starts at `offset`. Raises logs.streams.OffsetConflict, BadBatch, Over."""
    records = parse(body)
    with transaction.atomic():
        # the order of locks is the same everywhere: experiment, allocation, then stream and log
        stateful = any(record.get("k") in _STATEFUL for record in records)
        member = settle.lock(member_id) if stateful else _read(member_id)
        _refuse_over(member.allocation)
        streams.advance(member_id, offset, offset + len(body))
        _apply(member, records)
    observe.heartbeat(member.host_id)
    return Intake(offset + len(body), *_orders(member.allocation))


def _read(member_id: int) -> Member:
    return Member.objects.select_related("host", "allocation__task__job").get(pk=member_id)


def parse(body: bytes) -> list[dict[str, Any]]:
    """The records of a batch: one JSON object a line, the last line complete."""
    if body and not body.endswith(b"\n"):
        raise BadBatch("The batch ends in the middle of a record; send whole lines.")
    with contextlib.suppress(ValueError):  # all at once costs a quarter; record by record finds the bad one
        whole = json.loads(b"[" + body[:-1].replace(b"\n", b",") + b"]")
        if len(whole) == body.count(b"\n") and all(type(record) is dict for record in whole):
            return list(whole)
    records = []
    for number, line in enumerate(body.split(b"\n")[:-1], 1):
        try:
            record = json.loads(line)
        except ValueError as error:
            raise BadBatch(f"Record {number} of the batch is not JSON: {error}.") from error
        if not isinstance(record, dict):
            raise BadBatch(f"Record {number} of the batch is not a JSON object.")
        records.append(record)
    return records


def _apply(member: Member, records: Sequence[dict[str, Any]]) -> None:
    blocks = _blocks(records)
    if blocks:
        log_store.append(member.allocation.task_id, member, member.host.name, blocks)
    missing = sum(int(record.get("bytes") or 0) for record in records if record.get("k") == "gap")
    if missing:
        streams.count_missing(member.pk, missing)
    stateful = [record for record in records if record.get("k") in _STATEFUL]
    if not stateful:
        return
    trial = _trial(member) if any(record["k"] == "core" for record in stateful) else None
    for record in stateful:
        if record["k"] == "core" and _rank_ended(member, record.get("d")):
            continue
        if record["k"] == "core" and trial:
            _report(trial.experiment, trial, member, record.get("d"))
        elif record["k"] == "state" and record.get("state") == "running":
            transitions.member_running(member)
        elif record["k"] == "exit":
            if trial:  # what it reported before may have changed its allocation
                member.allocation = transitions.lock_allocation(member.allocation_id)
            _exited(member, record)


def _trial(member: Member) -> Trial | None:
    """The trial that reports, its experiment locked; None for other kinds of work."""
    experiment = outcomes.lock_for(member.allocation_id)
    trial = Trial.objects.select_related("task").filter(task_id=member.allocation.task_id).first()
    if trial and experiment:
        trial.experiment = experiment
    return trial


def _rank_ended(member: Member, data: object) -> bool:
    """Keep how a rank ended, of any kind of work. False: the report is another one, or none that can be read."""
    kind = data.get("type") if isinstance(data, dict) else None
    if not isinstance(data, dict) or kind not in _RANK_ENDS:
        return False
    try:
        transitions.rank_ended(member, data, failed=_RANK_ENDS[kind])
    except (KeyError, TypeError, ValueError):
        return False
    return True


def _report(experiment: Experiment, trial: Trial, member: Member, data: object) -> None:
    """Apply one report. One that cannot be applied is named in the log and left behind: it never blocks its stream."""
    try:
        if not isinstance(data, dict):
            raise TypeError(f"it is {type(data).__name__}, not an object")
        with transaction.atomic():
            reports.apply(experiment, trial, member, data)
    except (OperationalError, InterfaceError):
        raise  # the database is away or chose this transaction to break a deadlock: the runner sends it again
    except Exception as error:  # whatever a training script may have written
        log.exception("a report of %s could not be applied", member.run_key)
        # what it had changed is undone in the database, and so must be in the rows at hand
        experiment.refresh_from_db()
        trial.refresh_from_db()
        kind = data.get("type") if isinstance(data, dict) else None
        text = f"[a report of type {kind!r} could not be stored: {type(error).__name__}: {error}]"
        line = NewLine(timezone.now().timestamp(), None, "s", "ERROR", text)
        log_store.append(member.allocation.task_id, member, member.host.name, blocks_of([line]))


def _blocks(records: Sequence[dict[str, Any]]) -> list[Block]:
    """The lines among the records, in their order; a gap stands in the log as what it is."""
    blocks: list[Block] = []
    lines: list[NewLine] = []
    for record in records:
        match record.get("k"):
            case "lines":
                blocks += blocks_of(lines)
                lines.clear()
                blocks.append(_block(record))
            case "log":
                lines.append(_line(record))
            case "gap":
                lines.append(_gap(record))
    return blocks + blocks_of(lines)


def _block(record: dict[str, Any]) -> Block:
    """Lines that were read together. The host wrote them: fields of another form count as not given."""
    levels, cut = record.get("l"), record.get("c")
    try:
        named = [(int(index), str(name)) for index, name in levels] if levels else []
        cut_at = [int(index) for index in cut] if cut else []
    except (TypeError, ValueError):
        named, cut_at = [], []
    return Block(_time(record), record.get("r"), _stream(record), named, cut_at, str(record.get("m", "")))


def _line(record: dict[str, Any]) -> NewLine:
    """The record of a single line, which older runners write."""
    level = record.get("l")
    return NewLine(
        _time(record),
        record.get("r"),
        _stream(record),
        level if isinstance(level, str) else None,
        str(record.get("m", "")),
        bool(record.get("c")),
    )


def _time(record: dict[str, Any]) -> float:
    time = record.get("t")
    return float(time) if isinstance(time, int | float) else 0.0


def _stream(record: dict[str, Any]) -> str:
    return STDERR if record.get("s") == "stderr" else STDOUT


def _gap(record: dict[str, Any]) -> NewLine:
    return NewLine(
        time=timezone.now().timestamp(),
        rank=None,
        stream=SERVER,
        level="WARNING",
        text=f"[{int(record.get('bytes') or 0):,} bytes missing: the spool on the host was full]",
    )


def _exited(member: Member, record: dict[str, Any]) -> None:
    """The last record: everything before it is stored, so the end may be shown."""
    streams.close(member.pk)
    failure, kills = record.get("first_failure"), record.get("oom_kills")
    settle.member_exited(
        member,
        code=record.get("code"),
        signal=record.get("signal"),
        ended_at=record.get("t"),
        first_failure=failure if isinstance(failure, dict) else None,
        boot_id=str(record.get("boot_id") or ""),
        oom_kills=kills if isinstance(kills, dict) else None,
    )


def heartbeat(member_id: int, body: dict[str, Any]) -> Intake:
    """The runner is there; keep its account of the spool. Raises Over."""
    member = Member.objects.select_related("allocation", "stream").get(pk=member_id)
    _refuse_over(member.allocation)
    spool = {key: int(body.get(key) or 0) for key in ("spool_bytes", "unshipped_bytes", "dropped_bytes")}
    Member.objects.filter(pk=member_id).update(heartbeat_at=timezone.now(), spool=spool)
    pulse.keep(member_id, body.get("pulse"))
    observe.heartbeat(member.host_id)
    begins = str(body.get("state")) == "running" and member.state != MemberState.RUNNING
    if begins and transitions.member_running(member_id):
        announce(f"allocation:{member.allocation_id}")
    return Intake(streams.stored(member_id), *_orders(member.allocation))


def signals(allocation_id: str) -> Intake:
    """What is asked of the run now, for the long poll. Raises Over."""
    allocation = Allocation.objects.get(pk=allocation_id)
    _refuse_over(allocation)
    return Intake(-1, *_orders(allocation))


def _refuse_over(allocation: Allocation) -> None:
    if allocation.state == AllocationState.TERMINATED:
        raise Over(f"Allocation {allocation.pk} is over.")


def _orders(allocation: Allocation) -> tuple[dict[str, Any] | None, dict[str, Any] | None]:
    reason = str(allocation.stop_reason)
    if allocation.stop_kind == StopKind.STOP:
        return None, {"grace_seconds": allocation.stop_grace_seconds, "reason": reason}
    if allocation.stop_kind == StopKind.PREEMPT:
        return {"reason": reason}, None
    return None, None
