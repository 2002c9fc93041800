"""Tasks and their attempts."""

from __future__ import annotations

from collections import Counter

from django.db.models import Prefetch
from rest_framework.request import Request

from accounts.rights import Right
from commands.models import Command, Service
from experiments.models import Trial
from jobs import dialect_ends
from jobs.models import Allocation, Job, Member, Task
from jobs.states import AllocationState
from trainmaster import dialect_words
from webui.api.answers import Answer, Maybe, Time
from webui.api.async_views import Principal
from webui.api.errors import BadRequest, Missing
from webui.api.slots import DeviceRecord, device
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


class AllocationRecord(Answer):
    """One attempt. `isReady`: it is running, and its service accepts connections."""

    allocation_id: str
    task_id: str
    slots: int
    state: str
    is_ready: bool
    start_time: Time
    end_time: Maybe[Time] = None
    exit_reason: Maybe[str] = None
    status_code: Maybe[int] = None
    exit_detail: Maybe[Json] = None


class TaskRecord(Answer):
    """`allocations`: its attempts, newest first."""

    task_id: str
    task_type: str
    name: str
    start_time: Time
    end_time: Maybe[Time] = None
    job_id: str
    allocations: list[AllocationRecord]


class TaskAnswer(Answer):
    task: TaskRecord


class DevicesRecord(Answer):
    devices: list[DeviceRecord]


class ResourcesRecord(Answer):
    """One member of an attempt. `agentDevices`: host name -> what it holds there."""

    allocation_id: str
    resources_id: str
    resources_type: str = "ssh-run"
    container_id: str
    agent_devices: dict[str, DevicesRecord]


class ProxyPort(Answer):
    service_id: str
    port: int
    proxy_tcp: bool
    unauthenticated: bool


class AllocationSummary(Answer):
    """What holds slots now, and where; `proxyPorts`: those that a command's config has people reach."""

    task_id: str
    allocation_id: str
    name: str
    slots_needed: int
    registered_time: Time
    resource_pool: str
    priority: int
    scheduler_type: str
    proxy_ports: list[ProxyPort]
    resources: list[ResourcesRecord]


class TasksAnswer(Answer):
    allocation_id_to_summary: dict[str, AllocationSummary]


class TaskCountAnswer(Answer):
    commands: int
    notebooks: int
    shells: int
    tensorboards: int


def encode_allocation(allocation: Allocation) -> AllocationRecord:
    return AllocationRecord.of(
        allocation,
        allocation_id=allocation.pk,
        state=_STATES[AllocationState(allocation.state)],
        is_ready=allocation.state == AllocationState.RUNNING and _takes_connections(allocation),
        start_time=allocation.started_at or allocation.assigned_at,
        end_time=allocation.ended_at,
        exit_reason=exit_reason(allocation),
        status_code=allocation.exit_code,
        exit_detail=allocation.exit_detail or None,
    )


def exit_reason(allocation: Allocation) -> str | None:
    """Determined's words, and ours; None while the attempt lasts."""
    end = dialect_ends.end_of(allocation)
    return dialect_words.beside(end.exit_reason, allocation.get_exit_reason_display()) if end else None


def _takes_connections(allocation: Allocation) -> bool:
    """False while the program of a shell, notebook or TensorBoard only starts."""
    return not Service.objects.filter(command__task_id=allocation.task_id, ready_at=None).exists()


def encode_summary(allocation: Allocation) -> AllocationSummary:
    """One line of `task list`: what holds slots now, and where."""
    job = allocation.task.job
    return AllocationSummary.of(
        allocation,
        allocation_id=allocation.pk,
        name=allocation.task.name,
        slots_needed=allocation.slots,
        registered_time=allocation.assigned_at,
        resource_pool=allocation.pool.name,
        priority=job.priority,
        scheduler_type=allocation.pool.scheduler,
        proxy_ports=_proxy_ports(allocation.task),
        resources=[_resources(member) for member in allocation.members.all()],
    )


def _proxy_ports(task: Task) -> list[ProxyPort]:
    command: Command | None = getattr(task, "command", None)
    return [
        ProxyPort(
            service_id=f"{task.pk}:{each['proxy_port']}",
            port=each["proxy_port"],
            proxy_tcp=each["proxy_tcp"],
            unauthenticated=each["unauthenticated"],
        )
        for each in (command.proxy_ports if command else [])
    ]


def _resources(member: Member) -> ResourcesRecord:
    devices = DevicesRecord(devices=[device(hold.slot) for hold in member.holds.all()])
    return ResourcesRecord(
        allocation_id=member.allocation_id,
        resources_id=member.run_key,
        container_id=member.run_key,
        agent_devices={member.host.name: devices},
    )


class Tasks(ApiView):
    """What is running on pool hosts now, by allocation. Detached runs are not included; see their trials."""

    rights = {"GET": Right.READ}

    def get(self, request: Request) -> TasksAnswer:
        members = Prefetch("members", Member.objects.select_related("host").prefetch_related("holds__slot"))
        rows = (
            Allocation.objects.exclude(state=AllocationState.TERMINATED)
            .exclude(task__trial__experiment__unmanaged=True)
            .select_related("task__job", "task__command", "pool")
            .prefetch_related(members)
            .order_by("assigned_at")
        )
        return TasksAnswer(allocation_id_to_summary={row.pk: encode_summary(row) for row in rows})


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
        raise BadRequest(f"task {beginning} is ambiguous: it can be {named}; give more characters")
    return found[0]


def task_of_trial(who: Principal, trial_id: int) -> str:
    """The id of the trial's task. Raises Missing."""
    task_id = Trial.objects.filter(pk=trial_id).values_list("task_id", flat=True).first()
    if task_id is None or (isinstance(who, Allocation) and who.task_id != task_id):
        raise Missing(f"trial {trial_id} not found")
    return task_id


def own_task(who: Principal, task_id: str) -> str:
    """The id itself. Raises Missing."""
    is_another = isinstance(who, Allocation) and who.task_id != task_id
    if is_another or "\x00" in task_id or not Task.objects.filter(pk=task_id).exists():
        raise Missing(f"task {task_id!r} not found")
    return task_id


class OneTask(ApiView):
    """One task with all its attempts; its id may be shortened to any unique prefix."""

    rights = {"GET": Right.READ}

    def get(self, request: Request, task_id: str) -> TaskAnswer:
        task = find(task_id)
        attempts = sorted(task.allocations.all(), key=lambda allocation: -allocation.number)
        kind = task.kind if task.kind == Task.Kind.TRIAL else dialect_words.kind_of(task.job.kind)
        row = TaskRecord(
            task_id=task.pk,
            task_type=f"TASK_TYPE_{kind}",
            name=task.name,
            start_time=task.created_at,
            end_time=task.ended_at,
            job_id=str(task.job_id),
            allocations=[encode_allocation(allocation) for allocation in attempts],
        )
        return TaskAnswer(task=row)


class TaskCount(ApiView):
    """Running tasks by kind; trials are not counted, as in Determined."""

    rights = {"GET": Right.READ}

    def get(self, request: Request) -> TaskCountAnswer:
        open_ones = Allocation.objects.exclude(state=AllocationState.TERMINATED)
        counted = Counter(map(dialect_words.kind_of, open_ones.values_list("task__job__kind", flat=True)))
        kinds = (Job.Kind.COMMAND, Job.Kind.NOTEBOOK, Job.Kind.SHELL, Job.Kind.TENSORBOARD)
        return TaskCountAnswer(**{f"{kind.value.lower()}s": counted[kind] for kind in kinds})
