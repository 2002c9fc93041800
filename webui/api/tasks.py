"""Tasks and their attempts."""

from __future__ import annotations

from collections import Counter
from typing import NotRequired

from django.db.models import Prefetch
from rest_framework.request import Request
from rest_framework.response import Response
from typing_extensions import TypedDict

from commands.models import Service
from jobs.models import Allocation, Job, Member, Task
from jobs.states import AllocationState
from webui.api import encoding
from webui.api.answers import Time
from webui.api.errors import BadRequest, Missing
from webui.api.slots import DeviceRecord
from webui.api.views import ApiView, Json

_STATES = {
    AllocationState.ASSIGNED: "STATE_STARTING",
    AllocationState.STARTING: "STATE_STARTING",
    AllocationState.RUNNING: "STATE_RUNNING",
    AllocationState.TERMINATING: "STATE_TERMINATING",
    AllocationState.TERMINATED: "STATE_TERMINATED",
}

#: so many tasks are named where the beginning of an id fits several
_NAMED = 5


class AllocationRecord(TypedDict):
    """One attempt. `isReady`: it runs, and what people use of it takes connections."""

    allocationId: str
    taskId: str
    slots: int
    state: str
    isReady: bool
    startTime: Time
    endTime: NotRequired[Time]
    exitReason: NotRequired[str]
    statusCode: NotRequired[int]
    exitDetail: NotRequired[Json]


class TaskRecord(TypedDict):
    """`allocations`: its attempts, the newest first."""

    taskId: str
    taskType: str
    name: str
    startTime: Time
    endTime: NotRequired[Time]
    jobId: str
    allocations: list[AllocationRecord]


class TaskAnswer(TypedDict):
    task: TaskRecord


class DevicesRecord(TypedDict):
    devices: list[DeviceRecord]


class ResourcesRecord(TypedDict):
    """One member of an attempt. `agentDevices`: host name -> what it holds there."""

    allocationId: str
    resourcesId: str
    resourcesType: str
    containerId: str
    agentDevices: dict[str, DevicesRecord]


class AllocationSummary(TypedDict):
    taskId: str
    allocationId: str
    name: str
    slotsNeeded: int
    registeredTime: Time
    resourcePool: str
    priority: int
    schedulerType: str
    proxyPorts: list[Json]
    resources: list[ResourcesRecord]


class TasksAnswer(TypedDict):
    allocationIdToSummary: dict[str, AllocationSummary]


class TaskCountAnswer(TypedDict):
    commands: int
    notebooks: int
    shells: int
    tensorboards: int


def encode_allocation(allocation: Allocation) -> Json:
    return encoding.without_none(
        {
            "allocationId": allocation.pk,
            "taskId": allocation.task_id,
            "slots": allocation.slots,
            "state": _STATES[AllocationState(allocation.state)],
            "isReady": allocation.state == AllocationState.RUNNING and _takes_connections(allocation),
            "startTime": encoding.time(allocation.started_at or allocation.assigned_at),
            "endTime": encoding.time(allocation.ended_at),
            "exitReason": allocation.get_exit_reason_display() if allocation.exit_reason else None,
            "statusCode": allocation.exit_code,
            "exitDetail": allocation.exit_detail or None,
        }
    )


def _takes_connections(allocation: Allocation) -> bool:
    """False while the program of a shell, notebook or TensorBoard only starts."""
    return not Service.objects.filter(command__task_id=allocation.task_id, ready_at=None).exists()


def encode_summary(allocation: Allocation) -> Json:
    """One line of `task list`: what holds slots now, and where."""
    job = allocation.task.job
    return {
        "taskId": allocation.task_id,
        "allocationId": allocation.pk,
        "name": allocation.task.name,
        "slotsNeeded": allocation.slots,
        "registeredTime": encoding.time(allocation.assigned_at),
        "resourcePool": allocation.pool.name,
        "priority": job.priority,
        "schedulerType": allocation.pool.scheduler,
        "proxyPorts": [],
        "resources": [
            {
                "allocationId": allocation.pk,
                "resourcesId": member.run_key,
                "resourcesType": "ssh-run",
                "containerId": member.run_key,
                "agentDevices": {
                    member.host.name: {
                        "devices": [
                            {"id": hold.slot.index, "brand": hold.slot.brand, "uuid": hold.slot.uuid,
                             "type": f"TYPE_{hold.slot.kind.upper()}"}
                            for hold in member.holds.all()
                        ]
                    }
                },
            }
            for member in allocation.members.all()
        ],
    }  # fmt: skip


class Tasks(ApiView):
    """What runs on hosts of pools now, by allocation. Detached runs hold nothing, and their trials show them."""

    answers = {"GET": TasksAnswer}

    def get(self, request: Request) -> Response:
        members = Prefetch("members", Member.objects.select_related("host").prefetch_related("holds__slot"))
        rows = (
            Allocation.objects.exclude(state=AllocationState.TERMINATED)
            .exclude(task__trial__experiment__unmanaged=True)
            .select_related("task__job", "pool")
            .prefetch_related(members)
            .order_by("assigned_at")
        )
        return Response({"allocationIdToSummary": {row.pk: encode_summary(row) for row in rows}})


def find(beginning: str) -> Task:
    """The task whose id is the text or alone begins with it. Raises Missing, BadRequest."""
    tasks = Task.objects.select_related("job").prefetch_related("allocations")
    if not beginning or "\x00" in beginning:
        raise Missing(f"task {beginning!r} not found")
    task = tasks.filter(pk=beginning).first()
    if task is not None:
        return task
    found = list(tasks.filter(pk__startswith=beginning).order_by("pk")[: _NAMED + 1])
    if not found:
        raise Missing(f"task {beginning} not found")
    if len(found) > 1:
        named = ", ".join(one.pk for one in found[:_NAMED]) + (" or another" if len(found) > _NAMED else "")
        raise BadRequest(f"task {beginning} is not unique: it may be {named}; give more characters")
    return found[0]


class OneTask(ApiView):
    """One task with all its attempts; its id may be shortened to any unique beginning."""

    answers = {"GET": TaskAnswer}

    def get(self, request: Request, task_id: str) -> Response:
        task = find(task_id)
        attempts = sorted(task.allocations.all(), key=lambda allocation: -allocation.number)
        row = {
            "taskId": task.pk,
            "taskType": f"TASK_TYPE_{task.kind if task.kind == Task.Kind.TRIAL else task.job.kind}",
            "name": task.name,
            "startTime": encoding.time(task.created_at),
            "endTime": encoding.time(task.ended_at),
            "jobId": str(task.job_id),
            "allocations": [encode_allocation(allocation) for allocation in attempts],
        }
        return Response({"task": encoding.without_none(row)})


class TaskCount(ApiView):
    """Running tasks by kind; trials are not counted, as in Determined."""

    answers = {"GET": TaskCountAnswer}

    def get(self, request: Request) -> Response:
        open_ones = Allocation.objects.exclude(state=AllocationState.TERMINATED)
        counted = Counter(open_ones.values_list("task__job__kind", flat=True))
        kinds = (Job.Kind.COMMAND, Job.Kind.NOTEBOOK, Job.Kind.SHELL, Job.Kind.TENSORBOARD)
        return Response({f"{kind.value.lower()}s": counted[kind] for kind in kinds})
