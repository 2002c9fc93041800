"""What a run token may touch: its own allocation, that one's checkpoints, and those it may resume from."""

from __future__ import annotations

import hmac
import uuid
from dataclasses import dataclass
from typing import Any

from django.db.models import QuerySet

from accounts.models import token_hash
from dispatch.runs.intake import Over
from events import prepared
from experiments import checkpoints
from experiments.models import Checkpoint, Trial
from jobs.models import Allocation
from jobs.states import AllocationState
from webui.runner_api.answers import RefusedRequest

_NUMBER_DIGITS = 10  # that of an attempt has fewer


@dataclass(frozen=True)
class Sender:
    """The member that a token stands for."""

    member_id: int
    job_id: uuid.UUID


#: Who has shipped lately: (allocation id, index) -> (hash of the token, who it is). Whether its run is over is
#: asked with every batch by dispatch.runs.intake, so nobody keeps a right by being remembered.
_known: dict[tuple[str, int], tuple[str, Sender]] = {}
_KNOWN_MAX = 10_000


def known_sender(token: str, allocation_id: str, index: int) -> Sender | None:
    """The member without asking the database, when it has shipped with this token before."""
    known = _known.get((allocation_id, index))
    return known[1] if known and hmac.compare_digest(known[0], token_hash(token)) else None


def sender_of(token: str, allocation_id: str, index: int) -> Sender:
    """The member, also of an attempt that is over: dispatch.runs.intake says what it may bring.

    Raises RefusedRequest (401), of an attempt that is over intake.Over (410).
    """
    with prepared.cursor() as asks:
        asks.execute(_SENDER, [allocation_id, index])
        row = asks.fetchone()
    if row is None and _is_replaced(allocation_id):
        raise Over(f"Allocation {allocation_id} has ended: a later attempt has replaced it.")
    if row is None or not row[1] or not hmac.compare_digest(row[1], token_hash(token)):
        if row is not None and row[3] == AllocationState.TERMINATED:
            raise Over(f"Allocation {allocation_id} has ended.")
        raise _unknown_token()
    if len(_known) >= _KNOWN_MAX:
        _known.clear()
    sender = Sender(int(row[0]), row[2])
    _known[allocation_id, index] = (row[1], sender)
    return sender


#: Written out, since runners ask for their orders again and again.
_SENDER = """
SELECT member.id, allocation.token_hash, task.job_id, allocation.state
FROM jobs_member member JOIN jobs_allocation allocation ON allocation.id = member.allocation_id
JOIN jobs_task task ON task.id = allocation.task_id WHERE member.allocation_id = %s AND member.index = %s
"""


def _is_replaced(allocation_id: str) -> bool:
    """Whether an attempt that has no row here has a successor: it began after the backup that was restored."""
    task_id, _, number = allocation_id.rpartition(".")
    if not (number.isascii() and number.isdecimal() and len(number) < _NUMBER_DIGITS):
        return False
    return Allocation.objects.filter(task_id=task_id, number__gt=int(number)).exists()


def run_of(token: str, *, over_too: bool = False) -> Allocation:
    """The open allocation of this token. Raises RefusedRequest (401: nobody's token) or Over (410).

    With `over_too` also one that is over: the uploads of its checkpoints may outlive its ranks.
    """
    run = Allocation.objects.filter(token_hash=token_hash(token)).only("task_id", "number", "state").first()
    if run is None:
        raise _unknown_token()
    if run.state == AllocationState.TERMINATED and not over_too:
        raise Over(f"Allocation {run.pk} has ended.")
    return run


def storage_of(token: str) -> tuple[str, dict[str, Any]]:
    """The run's id and the `checkpoint_storage` of its experiment, keys and all. Raises RefusedRequest (404)."""
    run = run_of(token)
    return run.pk, _trial_of(run).experiment.config.get("checkpoint_storage") or {}


def _trial_of(run: Allocation) -> Trial:
    trial = Trial.objects.filter(task_id=run.task_id).select_related("experiment").first()
    if trial is None:
        raise RefusedRequest(404, "This run does not belong to a trial, so it has no checkpoints.")
    return trial


def _unknown_token() -> RefusedRequest:
    return RefusedRequest(401, "The run token was rejected: it is unknown to this server.")


def _checkpoints() -> QuerySet[Checkpoint]:
    """With the config that says where their files are."""
    return Checkpoint.objects.select_related("trial__experiment")


def checkpoint_to_write(token: str, checkpoint_uuid: uuid.UUID) -> Checkpoint:
    """A checkpoint that this very run has reported. Raises RefusedRequest (404, also for those of others)."""
    run = run_of(token, over_too=True)
    checkpoint = _checkpoints().filter(pk=checkpoint_uuid, allocation_id=run.pk).first()
    if checkpoint is None:
        raise RefusedRequest(404, f"This run has not reported a checkpoint {checkpoint_uuid} (yet).")
    return checkpoint


def checkpoint_to_read(token: str, checkpoint_uuid: uuid.UUID) -> Checkpoint:
    """A checkpoint of the run's experiment, or the one its trial starts from. Raises RefusedRequest (404)."""
    trial = _trial_of(run_of(token))
    checkpoint = _checkpoints().filter(checkpoints.open_to(trial), pk=checkpoint_uuid).first()
    if checkpoint is None:
        raise RefusedRequest(404, f"There is no checkpoint {checkpoint_uuid} that this run can read.")
    return checkpoint
