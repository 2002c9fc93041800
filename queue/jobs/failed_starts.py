"""Attempts that never started: where the task is not tried next, and when it has been tried often enough."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import StrEnum
from typing import Any

from django.conf import settings

from hosts import failed_starts as of_hosts
from hosts.models import Host
from jobs.models import Allocation, Member, Task
from jobs.states import NEVER_STARTED, Reason


class Fault(StrEnum):
    """Whose fault it is that something could not be started."""

    HOST = "host"  # it would start nothing else either: its disk, its Python, its login
    LINK = "link"  # the host was never reached: that is its silence, and nobody's failure
    RUN = "run"  # what this run needs there: an account, an image, a storage, a port
    WORKER = "worker"  # what starts it dies of it, wherever that would be: it is not tried again


def note(member: Member, reason: Reason, fault: Fault, sentence: str) -> None:
    """The member's attempt never started on its host; both are locked by the caller's step."""
    era: int | None = None
    if fault == Fault.HOST:
        era = of_hosts.note(member.host_id, member.allocation.task_id, sentence)
    elif fault != Fault.LINK:
        era = Host.with_machines.values_list("failed_starts_era", flat=True).get(pk=member.host_id)
    failed = {
        "host": member.host.name,
        "era": era,
        "attempt": member.allocation.number,
        "avoid": reason != Reason.PORT_IN_USE,  # other ports of the same host will do
        "final": fault == Fault.WORKER,
    }
    task = Task.objects.select_for_update(no_key=True).get(pk=member.allocation.task_id)
    Task.objects.filter(pk=task.pk).update(failed_starts=[*task.failed_starts, failed][-_KEPT:])


#: enough to count the attempts and to name the hosts, however long a pool is unreachable
_KEPT = 64


def forget(allocation: Allocation) -> None:
    """The attempt is over. If it had started, what failed before it no longer counts."""
    has_failed = allocation.task.failed_starts  # by attempts before this one, so nobody adds to it now
    if has_failed and allocation.started_at and allocation.exit_reason not in NEVER_STARTED:
        Task.objects.filter(pk=allocation.task_id).exclude(failed_starts=[]).update(failed_starts=[])


def avoided(failed: Iterable[Mapping[str, Any]], eras: Mapping[str, int]) -> frozenset[str]:
    """Names of the hosts that a task with these failed starts avoids; `eras`: by name of the hosts it may run on."""
    return frozenset(
        each["host"] for each in failed if each["avoid"] and each["era"] in (None, eras.get(each["host"]))
    )


def exhausted(task_id: str) -> bool:
    """True when LAUNCH_ATTEMPTS attempts in a row never started, on hosts that nobody found to be at fault.

    A failure does not count if the host was drained for it, was enabled since, or was never reached.
    """
    failed = Task.objects.values_list("failed_starts", flat=True).get(pk=task_id)
    names = {each["host"] for each in failed}
    eras = dict(Host.objects.filter(name__in=names).values_list("name", "failed_starts_era"))
    counted = {each["attempt"] for each in failed if each["era"] == eras.get(each["host"], -1)}
    return len(counted) >= settings.LAUNCH_ATTEMPTS or any(each["final"] for each in failed)
