"""Thousands of rows, for what only thousands show: pools of many hosts, commands that wait."""

import uuid

from accounts.models import User
from commands.models import Command
from hosts.models import Host, ResourcePool, Slot
from jobs.models import Job, Task
from submissions import contexts
from submissions.models import Context


def make_hosts(pool: ResourcePool, count: int, slots: int) -> list[Host]:
    """Ready, reachable hosts, each with its own address and so many CUDA slots."""
    hosts = Host.objects.bulk_create(
        Host(
            name=f"{pool.name}-{number:04}",
            pool=pool,
            address=f"10.{number // 250}.{number % 250}.1",
            admission=Host.Admission.READY,
            contact=Host.Contact.REACHABLE,
        )
        for number in range(count)
    )
    Slot.objects.bulk_create(
        Slot(host=host, index=index, kind=Slot.Kind.CUDA, uuid=f"GPU-{host.name}-{index}")
        for host in hosts
        for index in range(slots)
    )
    return hosts


def empty_context() -> Context:
    return contexts.store([])


def make_commands(pool: ResourcePool, owner: User, count: int, slots: int = 1) -> None:
    """Commands that wait, as `commands.submit` leaves them."""
    ids = [uuid.uuid4() for _ in range(count)]
    config = {"entrypoint": "true", "environment": {}, "resources": {"slots": slots}}
    jobs = Job.objects.bulk_create(
        Job(
            kind=Job.Kind.COMMAND,
            name=f"command {number}",
            owner=owner,
            pool=pool,
            position=float(number),
            preemptible=False,
            entity_id=str(pk),
        )
        for number, pk in enumerate(ids)
    )
    tasks = Task.objects.bulk_create(
        Task(id=str(pk), job=job, kind=Task.Kind.COMMAND, name=job.name, slots=slots, single_host=True)
        for pk, job in zip(ids, jobs, strict=True)
    )
    context = empty_context()
    Command.objects.bulk_create(
        Command(id=pk, job=job, task=task, owner=owner, description=job.name, config=config, context=context)
        for pk, job, task in zip(ids, jobs, tasks, strict=True)
    )
