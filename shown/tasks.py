"""Commands, shells, notebooks and TensorBoards as they are shown: the query with all their parts, and a row of each."""

from __future__ import annotations

import getpass
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from django.db.models import OuterRef, Prefetch, Q, QuerySet
from django.utils import timezone

from commands.config import shown
from commands.models import Command, Service
from commands.states import CommandState
from hosts.login_accounts import unix_user
from hosts.models import Host
from jobs import phases
from jobs.labels import label_of
from jobs.models import Allocation, Job, Member
from jobs.states import AllocationState
from shown import arrays, verdicts
from shown.arrays import ArrayCounts


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

    #: the elements of its array, if it is one of them
    array: ArrayCounts | None = None
    #: it stands for its whole array
    folds: bool = False

    @property
    def kind(self) -> str:
        return "Array" if self.folds else self.command.kind.label

    @property
    def kill_asks(self) -> str:
        return array_kill_asks(self.command.job) if self.folds else kill_asks(self.command)

    @property
    def short_id(self) -> str:
        return str(self.command.job_id)[:8] if self.folds else self.command.short_id

    @property
    def name(self) -> str:
        return self.command.job.name if self.folds else self.command.description

    @property
    def address(self) -> str:
        """Its page: of a whole array, the list of its elements."""
        return elements_at(self.command.job_id) if self.folds else f"/commands/{self.command.pk}"

    @property
    def is_open(self) -> bool:
        """Whether there is something to kill."""
        if self.folds and self.array:
            return not self.array.has_ended
        return self.command.state == CommandState.ACTIVE

    @property
    def kill_at(self) -> str:
        return f"/arrays/{self.command.job_id}/kill" if self.folds else f"/commands/{self.command.pk}/kill"

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
        if self.folds and self.array:
            return self.array.state
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
        if self.folds and self.array:
            waits = f"; {self.waiting}" if self.phase == phases.QUEUED and self.waiting else ""
            return self.array.words + waits
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


def array_kill_asks(job: Job) -> str:
    """The consequence that is confirmed before an array is killed."""
    return f"All {job.elements:,} elements of {label_of(job.kind, job.entity_id)} that have not ended are stopped."


def elements_at(array_id: object) -> str:
    """The page with the elements of an array."""
    return f"/tasks?array={array_id}"


def with_parts() -> QuerySet[Command]:
    """Commands with phase, owner, pool, task, service, attempts and their hosts, in three queries for any number."""
    members = Prefetch("members", Member.objects.select_related("host"))
    attempts = Prefetch("task__allocations", Allocation.objects.prefetch_related(members))
    rows = Command.objects.select_related("owner", "job__pool", "task", "service").prefetch_related(attempts)
    return rows.annotate(**phases.beside(Q(task=OuterRef("task_id"))))


def rows(commands: Iterable[Command], *, folds: bool = False) -> list[TaskRow]:
    """The rows of commands that `with_parts` has read. `folds`: an element stands for its array."""
    commands = list(commands)
    counts = arrays.counts_by_job({each.job_id for each in commands if each.array_index is not None})
    return [_row(each, counts.get(each.job_id), folds) for each in commands]


def row(command: Command, *, folds: bool = False) -> TaskRow:
    """The row of one of them."""
    return rows([command], folds=folds)[0]


def _row(command: Command, array: ArrayCounts | None, folds: bool) -> TaskRow:
    attempt = next(iter(command.task.allocations.all()), None)
    service = getattr(command, "service", None)
    return TaskRow(command, phases.of(command), service, attempt, array, folds and array is not None)


def login_account(command: Command) -> str:
    """The Unix account that a login to the shell names; before it has a host, what the hosts of its pool agree on."""
    pool = command.job.pool
    if own := unix_user(pool, command.owner.unix_user):
        return own
    attempts = command.task.allocations.all()  # as `with_parts` has read them
    hosts = [member.host for attempt in attempts for member in attempt.members.all()]
    names = {host.login_user or getpass.getuser() for host in hosts or Host.objects.filter(pool=pool)}
    return names.pop() if len(names) == 1 else ""
