"""Reads one pool into plain values for the planner: the first third of a pass (law 1)."""

from __future__ import annotations

from collections import defaultdict
from datetime import datetime

from django.db.models import Max, Q

from experiments.models import Checkpoint
from hosts.models import Host, ResourcePool, Slot
from jobs.models import Allocation, Job, Member, SlotHold, Task
from jobs.states import AllocationState, JobState, MemberState, Reason, TaskState
from scheduling.world import HostView, Placement, PoolView, Request, SlotView, Snapshot

LABELS = {Job.Kind.EXPERIMENT: "exp", Job.Kind.COMMAND: "cmd"}


def take(pool: ResourcePool, now: datetime) -> Snapshot:
    """The pool, its hosts with what is held on them, and every task that waits or runs."""
    return Snapshot(
        now=now.timestamp(),
        pool=PoolView(
            name=pool.name,
            scheduler="fair_share" if pool.scheduler == ResourcePool.Scheduler.FAIR_SHARE else "priority",
            fitting="worst" if pool.fitting == ResourcePool.Fitting.WORST else "best",
            preemption=pool.preemption,
            allow_heterogeneous_fits=pool.allow_heterogeneous_fits,
        ),
        hosts=_hosts(pool),
        requests=_requests(pool, now),
    )


def _hosts(pool: ResourcePool) -> tuple[HostView, ...]:
    known = Q(admission=Host.Admission.READY) | Q(admission=Host.Admission.SUSPENDED)
    hosts = list(pool.hosts.filter(known))
    holders = dict(
        SlotHold.objects.filter(released_at=None, slot__host__in=hosts).values_list("slot_id", "member__allocation_id")
    )
    aux: dict[object, int] = defaultdict(int)
    zero_slot = Member.objects.filter(host__in=hosts, slots=0).exclude(state=MemberState.ENDED)
    for host_id in zero_slot.values_list("host_id", flat=True):
        aux[host_id] += 1
    slots: dict[object, list[SlotView]] = defaultdict(list)
    for slot in Slot.objects.filter(host__in=hosts).order_by("host_id", "index"):
        slots[slot.host_id].append(
            SlotView(
                id=slot.pk,
                index=slot.index,
                kind=slot.kind,
                enabled=slot.enabled and not slot.missing,
                draining=slot.draining,
                held_by=holders.get(slot.pk),
                outside=str(slot.outside.get("user") or "someone") if slot.outside else None,
            )
        )
    return tuple(
        HostView(
            id=str(host.pk),
            name=host.name,
            slots=tuple(slots[host.pk]),
            enabled=host.enabled,
            draining=host.draining,
            silent=host.contact != Host.Contact.REACHABLE,
            suspended=host.admission == Host.Admission.SUSPENDED,
            aux_capacity=pool.aux_per_host,
            aux_held=aux[host.pk],
        )
        for host in hosts
    )


def _requests(pool: ResourcePool, now: datetime) -> tuple[Request, ...]:
    # a job that was moved to another pool is seen here too until its last attempt has left
    leaving = Allocation.objects.filter(pool=pool).exclude(state=AllocationState.TERMINATED)
    here = Q(job__pool=pool, state__in=[TaskState.WAITING, TaskState.RUNNING])
    tasks = list(
        Task.objects.select_related("job")
        .filter(here | Q(pk__in=leaving.values("task_id")))
        .exclude(Q(state=TaskState.WAITING) & ~Q(job__state=JobState.ACTIVE))
        .order_by("job__priority", "job__position", "created_at")
    )
    placements = _placements(pool, [task.pk for task in tasks if task.state == TaskState.RUNNING])
    return tuple(
        Request(
            task_id=task.pk,
            job_id=str(task.job_id),
            label=f"{LABELS[Job.Kind(task.job.kind)]} {task.job.entity_id}",
            slots=task.slots,
            priority=task.job.priority,
            position=task.job.position,
            submitted_at=task.created_at.timestamp(),
            moved_at=task.job.moved_at.timestamp() if task.job.moved_at else None,
            weight=task.job.weight,
            max_slots=task.job.max_slots,
            preemptible=task.job.preemptible,
            single_host=task.single_host,
            avoid_hosts=frozenset(task.avoid_hosts),
            running=placements.get(task.pk),
            blocked_reason=_blocked(task, now),
        )
        for task in tasks
        if task.state == TaskState.WAITING or task.pk in placements
    )


def _blocked(task: Task, now: datetime) -> str | None:
    if task.blocked_by == Reason.WAITS_FOR_UPLOAD:
        return "its newest checkpoint is still being uploaded"
    if task.not_before and task.not_before > now:
        seconds = (task.not_before - now).total_seconds()
        return f"could not be started; tried again in {max(1, round(seconds))} s"
    return Reason(task.blocked_by).label if task.blocked_by else None


def _placements(pool: ResourcePool, task_ids: list[str]) -> dict[str, Placement]:
    """Where the open allocations of these tasks stand in this pool, by task."""
    allocations = list(
        Allocation.objects.filter(task_id__in=task_ids, pool=pool).exclude(state=AllocationState.TERMINATED)
    )
    by_member = SlotHold.objects.filter(released_at=None, member__allocation__in=allocations)
    held: dict[str, dict[str, list[int]]] = defaultdict(lambda: defaultdict(list))
    for allocation_id, host_id, slot_id in by_member.values_list(
        "member__allocation_id", "slot__host_id", "slot_id"
    ):
        held[allocation_id][str(host_id)].append(slot_id)
    for allocation_id, host_id in Member.objects.filter(allocation__in=allocations, slots=0).values_list(
        "allocation_id", "host_id"
    ):
        held[allocation_id][str(host_id)] = []
    saved = dict(
        Checkpoint.objects.filter(trial__task_id__in=task_ids)
        .values_list("trial__task_id")
        .annotate(Max("reported_at"))
    )
    return {
        allocation.task_id: Placement(
            allocation_id=allocation.pk,
            slots={host: tuple(ids) for host, ids in held[allocation.pk].items()},
            started_at=allocation.assigned_at.timestamp(),
            stopping=bool(allocation.stop_kind),
            stopping_for=allocation.stop_for_task or None,
            on_sufferance=allocation.on_sufferance,
            last_saved_at=saved[allocation.task_id].timestamp() if allocation.task_id in saved else None,
        )
        for allocation in allocations
    }
