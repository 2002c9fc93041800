"""Where something ACTIVE stands, read from its attempts: queued, starting or running (features.md 4.2).

One rule for the pages, the API's records and its filters. What has started reads RUNNING until the attempt is
over, while it is being stopped too; an attempt that is stopped before it started holds slots but starts nothing.

Work that leaves first hears of it ("pausing"), then acknowledges and saves ("saving"), then is gone: that word is the
same on the board, in dialogs, over REST and on the command line.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any, Protocol

from django.db.models import Case, CharField, Exists, F, Q, Value, When

from jobs.models import Allocation
from jobs.states import AllocationState, Reason, StopKind

QUEUED, STARTING, RUNNING = "QUEUED", "STARTING", "RUNNING"
_ACTIVE = "ACTIVE"  # of experiments, trials and commands
SAVING, ENDING, STOPPING = "saving", "ending", "stopping"
#: asked to save and leave, and not acknowledged yet
_ASKED = {
    Reason.PAUSED_BY_USER: "pausing",
    Reason.PREEMPTED: "pausing",
    Reason.SEARCHER_PARKED: "pausing",
    Reason.MAX_SLOTS_SET: "pausing",
    Reason.WINDOW: "pausing",
    Reason.HOST_FAULT: "pausing",
    Reason.CANCELED_BY_USER: "canceling",
    Reason.POOL_CHANGED: "moving",
}
#: told to end; there is no time left to save
_TOLD = {Reason.CANCELED_BY_USER: "canceling", Reason.KILLED_BY_USER: "killing"}


def beside(mine: Q) -> dict[str, Exists]:
    """Annotations for rows whose allocations are `mine` (with OuterRef), as `of` and `where` read them."""
    attempts = Allocation.objects.filter(mine).exclude(state=AllocationState.TERMINATED)
    begun = attempts.filter(started_at__isnull=False)
    coming = attempts.filter(started_at=None).exclude(state=AllocationState.TERMINATING)
    return {"running": Exists(begun), "starting": Exists(coming)}


def of(row: Any) -> str:
    """The state in words of one row with `beside`: an experiment is as far as its farthest trial."""
    if row.state != _ACTIVE:
        return str(row.state)
    return RUNNING if row.running else STARTING if row.starting else QUEUED


def in_words(attempts: Mapping[str, Any], words: Mapping[str, str]) -> Case:
    """What `of` says, to order rows by; `attempts`: of `beside`. States are called as in `words`, else as they are."""
    active = Q(state=_ACTIVE)

    def said(code: str) -> Value:
        return Value(words.get(code, code))

    others = [When(state=code, then=said(code)) for code in words]
    return Case(
        When(active & Q(attempts["running"]), then=said(RUNNING)),
        When(active & Q(attempts["starting"]), then=said(STARTING)),
        When(active, then=said(QUEUED)),
        *others,
        default=F("state"),
        output_field=CharField(),
    )


def where(*words: str) -> Q:
    """Which rows with `beside` have one of these states in words; ACTIVE itself means all three phases."""
    shares = {
        QUEUED: Q(running=False, starting=False),
        STARTING: Q(running=False, starting=True),
        RUNNING: Q(running=True),
    }
    found = Q()
    for word in words:
        found |= Q(state=_ACTIVE) & shares[word] if word in shares else Q(state=word)
    return found


class AttemptLike(Protocol):
    """What these words look at: an allocation, or a row of its columns."""

    @property
    def state(self) -> str: ...
    @property
    def stop_kind(self) -> str: ...
    @property
    def stop_reason(self) -> str: ...
    @property
    def preempt_acked_at(self) -> datetime | None: ...


def leaves(run: AttemptLike) -> bool:
    """Whether an open attempt was asked to stop or ends by itself (`jobs.queue_order.LEAVES` in SQL)."""
    return bool(run.stop_kind) or run.state == AllocationState.TERMINATING


def word(run: AttemptLike) -> str:
    """The word for a run that leaves."""
    return leaving(run.stop_kind, run.stop_reason, run.preempt_acked_at is not None)


def leaving(stop_kind: str, reason: str, acknowledged: bool) -> str:
    """The word for a run that leaves; one that nobody asked to leave ends by itself."""
    if stop_kind == StopKind.STOP:
        return _TOLD.get(Reason(reason), STOPPING) if reason else STOPPING
    if stop_kind == StopKind.PREEMPT:
        return SAVING if acknowledged else _ASKED.get(Reason(reason), STOPPING) if reason else STOPPING
    return ENDING


def together(words: Iterable[str]) -> str:
    """One word for several runs that leave, of which each has its own."""
    found = set(words)
    return found.pop() if len(found) == 1 else STOPPING


def of_runs(attempts: Iterable[AttemptLike]) -> str:
    """RUNNING, STARTING, or how all of them leave (PAUSING, SAVING…), for the open attempts of a job, one at least."""
    runs = list(attempts)
    staying = {run.state for run in runs if not leaves(run)}
    if AllocationState.RUNNING in staying:
        return RUNNING
    if staying:
        return STARTING
    return together(word(run) for run in runs).upper()
