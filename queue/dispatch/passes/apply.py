"""Writes a plan: the last third of a pass. Every item is guarded; what has gone stale is dropped."""

from __future__ import annotations

import logging
import uuid
from collections.abc import Sequence
from dataclasses import dataclass

from django.db import InterfaceError, OperationalError, transaction

from commands import burn_in
from events.announce import wake
from experiments import runs
from experiments.models import Trial
from jobs import assigning, transitions
from jobs.assigning import Assignment
from jobs.states import Reason, StopKind
from scheduling.world import Plan, Release, Start

log = logging.getLogger(__name__)
_ACTOR = "scheduler"
#: A pass writes so many starts and leaves the others to the next one, so that no transaction and no lock lasts long.
MOST_STARTS = 500
#: Logs that one message asks to bring up to date.
LOGS_A_MESSAGE = 50


@dataclass(frozen=True)
class Applied:
    """Starts that were still possible, and whether some were left for the next pass."""

    started: int
    left: bool


def apply(plan: Plan) -> Applied:
    """Make the plan's first starts and all its releases.

    Tasks are locked before allocations, each in the order of their ids, as people's wishes lock them.
    """
    starts = plan.starts[:MOST_STARTS]
    transitions.lock_tasks([item.task_id for item in starts])
    started = _start(starts)
    releases = sorted(plan.releases, key=lambda item: item.allocation_id)
    for item in releases:
        _release(item)
    return Applied(started, len(starts) < len(plan.starts))


def _release(item: Release) -> None:
    timeout = (
        Trial.objects.filter(task_id=item.task_id)
        .values_list("experiment__config__preemption_timeout", flat=True)
        .first()
    )
    if timeout is None:
        timeout = burn_in.seconds_to_leave(item.task_id)
    transitions.request_stop(
        item.allocation_id,
        StopKind.PREEMPT,
        reason=_why(item),
        actor=_ACTOR,
        preemption_timeout_seconds=timeout,
        for_task_id=item.for_task_id or "",
    )


def _why(item: Release) -> Reason:
    if item.window:
        return Reason.WINDOW
    return Reason.PREEMPTED if item.for_task_id else Reason.MAX_SLOTS_SET


def _start(starts: Sequence[Start]) -> int:
    """All at once, or one by one where something about one of them is broken: it must not keep the others."""
    if not starts:
        return 0
    wanted = [
        Assignment(item.task_id, [(uuid.UUID(host), slots) for host, slots in item.hosts], item.on_sufferance)
        for item in starts
    ]
    try:
        return _assign(wanted)
    except (OperationalError, InterfaceError):
        raise  # the database is away, or chose this pass to break a deadlock: the next tick does it all again
    except Exception as error:
        if len(wanted) == 1:
            log.exception("task %s could not be started", wanted[0].task_id)
            return 0
        log.info("a batch of %s starts failed, so they are tried one by one: %s", len(wanted), error)
    return sum(_start([item]) for item in starts)


@transaction.atomic
def _assign(wanted: Sequence[Assignment]) -> int:
    allocations = assigning.assign_all(wanted, actor=_ACTOR)
    runs.begin_all(allocations)
    tasks = tuple(allocation.task_id for allocation in allocations)
    for first in range(0, len(tasks), LOGS_A_MESSAGE):
        wake("dispatch.tasks.merge_logs", tasks[first : first + LOGS_A_MESSAGE])
    return len(allocations)
