"""Signs of faults that hosts report, asked along with the state of their runs, and what follows from them."""

from __future__ import annotations

import time
import uuid
from collections.abc import Collection, Mapping
from datetime import timedelta
from typing import Any

from django.conf import settings
from django.db.models import F
from django.utils import timezone

from dispatch.going_on import going_on
from dispatch.watching import outsiders
from events.models import Event
from experiments.models import Experiment
from hosts.health import measured, signs
from hosts.models import Host
from hosts.pools import mark_dirty
from jobs import quarantine
from jobs.models import Member, Task
from jobs.states import MemberState, Reason, TaskState

_MOST_FOLDERS = 8
#: after the end of a run, in which its processes are swept anyway
_JUST_ENDED = timedelta(seconds=60)

Json = Mapping[str, Any]


def question(host: Host, members: Collection[Member] = ()) -> dict[str, Any]:
    """What to add to a `status` request. `members` have runs there, of whose folders it is asked as well."""
    folders = [*settings.MOUNTED, *_folders_of(members)]
    condition = {"gpus": signs.gpus_of(host), "folders": folders[: 2 * _MOST_FOLDERS]}
    return {**signs.question(host), "condition": condition}


def take_in(host_id: uuid.UUID, answer: Json, request: Json | None = None) -> None:
    """Keep what the host told if it was asked, and take out of use what has a fault. Nonsense harms no other host."""
    received = time.time()
    if "kernel" not in answer and "condition" not in answer:
        return
    with going_on(f"the signs of faults of host {host_id}"):
        if "kernel" in answer:
            signs.take_in(host_id, answer["kernel"])
        if "condition" in answer:
            _compare(host_id, answer["condition"], (request or {}).get("condition") or {}, received)
        quarantine.judge(host_id)
        _prove(host_id)


def _prove(host_id: uuid.UUID) -> None:
    """What waits because of a fault here that its run alone had told may use spares, once the host has told it, too."""
    ended = Member.objects.filter(
        host=host_id, allocation__exit_reason=Reason.HOST_FAULT, allocation__number=F("allocation__task__run_count"),
        allocation__task__state=TaskState.WAITING, allocation__task__recovers=False,
    )  # fmt: skip
    for member in ended.select_related("host", "allocation"):
        task_id = member.allocation.task_id
        counted = Event.objects.filter(kind=Event.Kind.TASK, subject=task_id, detail__is_counted=True)
        since = counted.filter(at__gte=member.allocation.assigned_at)
        if quarantine.fault_of(member) and not since.exists():
            waiting = Task.objects.filter(pk=task_id, state=TaskState.WAITING)
            waiting.filter(run_count=member.allocation.number).update(recovers=True)
            mark_dirty(member.host.pool_id)


def _compare(host_id: uuid.UUID, told: object, request: Json, received: float) -> None:
    host = Host.objects.filter(pk=host_id).only("workdir").first()
    folders = tuple(request.get("folders") or ())
    asked = measured.Asked(request.get("gpus") or {}, folders, tuple(settings.MOUNTED))
    over = _ended(host_id, told)
    run_folder = host.workdir if host is not None else ""
    look = measured.read(told, asked, server_now=received, run_folder=run_folder, over=over)
    if look is not None:
        signs.compare(host_id, look)


def _ended(host_id: uuid.UUID, told: object) -> dict[str, str | None]:
    """The account of each run that ended a while ago and of which processes may be left.

    That is told, and nothing follows from it: a marker is what its process says. What computes on a GPU is asked for
    by `outsiders`.
    """
    keys = set(measured.runs(told))
    if not keys:
        return {}
    before = timezone.now() - _JUST_ENDED
    return {
        member.run_key: member.allocation.account
        for member in outsiders.members(host_id, keys)
        if member.state == MemberState.ENDED and member.ended_at is not None and member.ended_at < before
    }


def _folders_of(members: Collection[Member]) -> list[str]:
    """Where the experiments of these runs store on the host itself."""
    jobs = {member.allocation.task.job_id for member in members}
    if not jobs:
        return []
    stored = Experiment.objects.filter(job__in=jobs).values_list(
        "config__checkpoint_storage__host_path", "config__checkpoint_storage__container_path"
    )
    found = {path for row in stored for path in row if isinstance(path, str) and path.startswith("/")}
    return sorted(found - set(settings.MOUNTED))[:_MOST_FOLDERS]
