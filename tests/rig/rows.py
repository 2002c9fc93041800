"""Rows that tests of logs, sockets and the runner's road start from: a gang that runs on some hosts."""

import uuid

from accounts.models import User, token_hash
from commands.models import Command
from hosts.models import Host, ResourcePool
from jobs.models import Allocation, Job, Member, Task
from jobs.states import AllocationState, TaskState
from tests.rig.many import empty_context

RUN_TOKEN = "the-run-token-of-the-test"


def make_gang(hosts: int = 1, *, token: str = RUN_TOKEN) -> list[Member]:
    """A running allocation with one member on each of `hosts` new hosts, member 0 first."""
    name = uuid.uuid4().hex[:8]
    user = User.objects.create_user(f"user-{name}")
    pool = ResourcePool.objects.create(name=f"pool-{name}")
    job = Job.objects.create(kind=Job.Kind.COMMAND, name=name, owner=user, pool=pool, position=1.0)
    task = Task.objects.create(
        id=f"task-{name}",
        job=job,
        kind=Task.Kind.COMMAND,
        name=name,
        slots=hosts,
        state=TaskState.RUNNING,
        run_count=1,
    )
    allocation = Allocation.objects.create(
        id=f"{task.pk}.1",
        task=task,
        number=1,
        pool=pool,
        state=AllocationState.RUNNING,
        slots=hosts,
        token_hash=token_hash(token),
    )
    return [
        Member.objects.create(
            allocation=allocation,
            index=index,
            slots=1,
            host=Host.objects.create(name=f"gpu{index}-{name}", pool=pool, transport=Host.Transport.LOCAL),
        )
        for index in range(hosts)
    ]


def make_command(hosts: int = 1) -> Command:
    """A command whose gang runs on so many new hosts, for pages that show one."""
    task = make_gang(hosts)[0].allocation.task
    return Command.objects.create(
        job=task.job,
        task=task,
        owner=task.job.owner,
        description=task.name,
        config={"entrypoint": "true", "environment": {}, "resources": {"slots": hosts}},
        context=empty_context(),
    )
