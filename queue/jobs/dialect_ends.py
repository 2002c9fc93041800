"""How an attempt ended, in Determined's words: which of them each reason of ours is (trainmaster/dialect_words.py)."""

from __future__ import annotations

from jobs.models import Allocation, Job, Task
from jobs.states import NEVER_STARTED, Reason
from trainmaster import dialect_words
from trainmaster.dialect_words import End

#: the program's own end, which its code tells
_OWN = frozenset({Reason.RANK_FAILED, Reason.COMMAND_FAILED, Reason.COMMAND_NOT_FOUND, Reason.INVALID_HP})
_OF_ITS_HOST = frozenset({Reason.HOST_LOST, Reason.HOST_RESTARTED, Reason.NO_SIGN_OF_LIFE})
_WITHOUT_A_CODE = frozenset({Reason.REPORTED_FAILURE, Reason.METRIC_MISSING})
#: only a trial is asked to save and leave; whatever else is stopped was killed, as was a trial that did not leave
_SAVED = frozenset(
    {Reason.PREEMPTED, Reason.PAUSED_BY_USER, Reason.CANCELED_BY_USER, Reason.POOL_CHANGED, Reason.SEARCHER_PARKED,
     Reason.SEARCHER_STOPPED, Reason.MAX_SLOTS_SET, Reason.HOST_FAULT, Reason.WINDOW}
)  # fmt: skip


def end_of(allocation: Allocation) -> End | None:
    """None while the attempt lasts."""
    return of(allocation.exit_reason, allocation.exit_code) if allocation.exit_reason else None


def of(reason: str, code: int | None) -> End:
    """What none of the sets names is a user's or the server's wish."""
    if reason == Reason.COMPLETED:
        return dialect_words.succeeded()
    if reason in _OWN:
        return dialect_words.failed(code) if code else dialect_words.failed_without_a_code()
    if reason in _OF_ITS_HOST:
        return dialect_words.host_failed()
    if reason in NEVER_STARTED:
        return dialect_words.not_launched()
    if reason == Reason.RUN_VANISHED:
        return dialect_words.vanished()
    if reason in _WITHOUT_A_CODE:
        return dialect_words.failed_without_a_code()
    return dialect_words.preempted() if code == 0 and reason in _SAVED else dialect_words.killed()


def name_of(task: Task) -> str:
    """The task as Determined's logs call it. A trial's is its name already."""
    return (
        task.name if task.kind == Task.Kind.TRIAL else dialect_words.named(Job.Kind(task.job.kind), task.name)
    )
