"""Commands, shells, notebooks and TensorBoards as they are shown: the query with all their parts, and a row of each."""

from __future__ import annotations

import getpass
from dataclasses import dataclass
from typing import Any

from django.db.models import OuterRef, Prefetch, Q, QuerySet
from django.utils import timezone

from commands.config import shown
from commands.models import Command, Service
from hosts.login_accounts import unix_user
from hosts.models import Host
from jobs import phases
from jobs.models import Allocation, Job, Member
from jobs.states import AllocationState
from shown import verdicts


@dataclass(frozen=True)
class TaskRow:
    """A command, shell, notebook or TensorBoard, read by `with_parts`."""

    command: Command
    #: its state in words of the dialect: QUEUED, STARTING or RUNNING while it is ACTIVE
    phase: str
    #: what people use of it through the server, if anything
    service: Service | None
    #: its only attempt, once it has slots
    attempt: Allocation | None

    @property
    def kind(self) -> str:
        return self.command.kind.label

    @property
    def kill_asks(self) -> str:
        return kill_asks(self.command)

    @property
    def is_ready(self) -> bool:
        """Whether people can use it now."""
        return self.service is not None and self.service.ready_at is not None and self.phase == phases.RUNNING

    @property
    def terminal_at(self) -> str:
        """The page with a terminal in it; empty for what has none, or none now."""
        is_shell = self.command.kind == Job.Kind.SHELL
        return f"/tasks/{self.command.pk}/terminal" if self.is_ready and is_shell else ""

    @property
    def state(self) -> str:
        """Its state in the words of a list: a service that people can use is READY."""
        return "READY" if self.is_ready else self.phase

    @property
    def current(self) -> Allocation | None:
        """Its attempt until that is over."""
        return self.attempt if self.attempt and self.attempt.state != AllocationState.TERMINATED else None

    @property
    def hosts(self) -> list[str]:
        return [member.host.name for member in self.attempt.members.all()] if self.attempt else []

    @property
    def ran_seconds(self) -> float | None:
        if self.attempt is None or self.attempt.started_at is None:
            return None
        return ((self.attempt.ended_at or timezone.now()) - self.attempt.started_at).total_seconds()

    @property
    def waiting(self) -> str:
        """Why it waits for slots; empty if it does not."""
        return verdicts.waiting(self.command.task, self.command.job.pool)

    @property
    def why(self) -> str:
        """Why it waits or how it ended; empty while it runs."""
        return self.waiting if self.phase == phases.QUEUED else self.command.ending

    @property
    def effective_config(self) -> dict[str, Any]:
        """What was submitted, with what queue edits have changed since. Secrets are masked."""
        job, config = self.command.job, self.command.config
        edited = {"priority": job.priority, "weight": job.weight, "resource_pool": job.pool.name}
        return shown({**config, "resources": {**config["resources"], **edited}})


def kill_asks(command: Command) -> str:
    """The consequence that is confirmed before it is killed."""
    name = f"{command.kind.label} {command.short_id}"
    return f"{name} is stopped immediately, with everything that runs in it."


def with_parts() -> QuerySet[Command]:
    """Commands with phase, owner, pool, task, service, attempts and their hosts, in three queries for any number."""
    members = Prefetch("members", Member.objects.select_related("host"))
    attempts = Prefetch("task__allocations", Allocation.objects.prefetch_related(members))
    rows = Command.objects.select_related("owner", "job__pool", "task", "service").prefetch_related(attempts)
    return rows.annotate(**phases.beside(Q(task=OuterRef("task_id"))))


def row(command: Command) -> TaskRow:
    """The row of a command that `with_parts` has read."""
    attempt = next(iter(command.task.allocations.all()), None)
    return TaskRow(command, phases.of(command), getattr(command, "service", None), attempt)


def login_account(command: Command) -> str:
    """The Unix account that a login to the shell names; before it has a host, what the hosts of its pool agree on."""
    pool = command.job.pool
    if own := unix_user(pool, command.owner.unix_user):
        return own
    attempts = command.task.allocations.all()  # as `with_parts` has read them
    hosts = [member.host for attempt in attempts for member in attempt.members.all()]
    names = {host.login_user or getpass.getuser() for host in hosts or Host.objects.filter(pool=pool)}
    return names.pop() if len(names) == 1 else ""
