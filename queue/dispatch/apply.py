"""Writes a plan: the last third of a pass. Every item is guarded; what has gone stale is dropped."""

from __future__ import annotations

import logging
import uuid

from django.db import InterfaceError, OperationalError, transaction

from events.announce import wake
from experiments import runs
from experiments.models import Trial
from jobs import transitions
from jobs.models import Task
from jobs.ports import NoPortLeft
from jobs.states import Reason, StopKind
from scheduling.world import Plan, Release, Start

log = logging.getLogger(__name__)
_ACTOR = "scheduler"


def apply(plan: Plan) -> int:
    """Make the plan's starts and releases; the number of items that were still possible.

    Tasks are locked before allocations, each in the order of their ids, as people's wishes lock them.
    """
    transitions.lock_tasks([item.task_id for item in plan.starts])
    started = sum(_start(item) for item in plan.starts)
    releases = sorted(plan.releases, key=lambda item: item.allocation_id)
    return started + sum(_release(item) for item in releases)


def _release(item: Release) -> bool:
    timeout = (
        Trial.objects.filter(task_id=item.task_id)
        .values_list("experiment__config__preemption_timeout", flat=True)
        .first()
    )
    return transitions.request_stop(
        item.allocation_id,
        StopKind.PREEMPT,
        reason=Reason.PREEMPTED,
        actor=_ACTOR,
        preemption_timeout_seconds=timeout,
        for_task_id=item.for_task_id,
    )


def _start(item: Start) -> bool:
    slots = Task.objects.values_list("slots", flat=True).get(pk=item.task_id)
    placement = [(uuid.UUID(host_id), slot_ids) for host_id, slot_ids in item.hosts]
    try:
        with transaction.atomic():
            allocation = transitions.assign(
                task_id=item.task_id,
                placement=placement,
                slots=slots,
                on_sufferance=item.on_sufferance,
                actor=_ACTOR,
            )
            runs.begin(allocation)
            wake("dispatch.tasks.merge_log", item.task_id)
    except (transitions.Stale, NoPortLeft) as reason:
        log.info("not started: %s", reason)
        return False
    except (OperationalError, InterfaceError):
        raise  # the database is away, or chose this pass to break a deadlock: the next tick does it all again
    except Exception:  # one task's broken rows must not keep the pool from starting the others
        log.exception("task %s could not be started", item.task_id)
        return False
    return True
