"""Shells, notebooks and TensorBoards: when they are ready, what counts as use, what follows when nobody uses one."""

from __future__ import annotations

from datetime import timedelta

import asyncssh
import pytest
from django.utils import timezone

from commands import services, shell_keys, submit
from commands.config import check
from commands.models import Command, Service
from commands.runs import describe
from commands.states import CommandState
from dispatch import idle_services, passes, settle
from hosts.pools import default_pool
from jobs import transitions as jobs
from jobs.models import Job, Member
from jobs.states import Reason, StopKind
from submissions import contexts
from tests.rig.world import make_host, make_user

pytestmark = pytest.mark.django_db


def made(kind: Job.Kind, **config: object) -> Command:
    return submit.create(
        owner=make_user(), config=check(dict(config), kind=kind), context=contexts.empty(), workspace_number=1,
        idempotency_key=None, actor="user:ada", kind=kind, shown=submit.Shown([7], []),
    )  # fmt: skip


def running(command: Command) -> Member:
    make_host("gpu1", 1)
    passes.run(default_pool().pk)
    member = Member.objects.select_related("allocation").get(allocation__task=command.task)
    jobs.member_launched(member.pk, boot_id="b")
    jobs.member_running(member.pk)
    services.reported(command.task_id, {"type": "ready", "port": 20_001})
    return member


def unused_for(command: Command, **time: float) -> None:
    at = timezone.now() - timedelta(**time)
    Service.objects.filter(pk=command.pk).update(ready_at=at, used_at=at)


def test_an_idle_timeout_ends_what_nobody_uses_and_that_is_no_failure() -> None:
    command = made(Job.Kind.SHELL, idle_timeout="2h")
    member = running(command)
    unused_for(command, minutes=119)
    idle_services.stop_unused()
    member.allocation.refresh_from_db()
    assert member.allocation.stop_kind == ""
    unused_for(command, minutes=121)
    idle_services.stop_unused()
    member.allocation.refresh_from_db()
    assert (member.allocation.stop_kind, member.allocation.stop_reason) == (
        StopKind.STOP,
        Reason.IDLE_TIMEOUT,
    )
    settle.member_exited(member.pk, code=143, signal=15, ended_at=1.0, first_failure=None, boot_id="b")
    command.refresh_from_db()
    assert command.state == CommandState.COMPLETED
    assert command.ending == "nobody used it for as long as its idle timeout (gpu1), exit code 143"


def test_use_is_noted_but_not_with_every_request() -> None:
    command = made(Job.Kind.SHELL, idle_timeout="2h")
    running(command)
    before = Service.objects.get().used_at
    services.used(str(command.pk))
    assert Service.objects.get().used_at == before
    unused_for(command, minutes=1)
    services.used(str(command.pk))
    noted = Service.objects.get().used_at
    assert noted is not None and timezone.now() - noted < timedelta(seconds=59)


def test_only_a_tensorboard_has_an_idle_timeout_of_its_own_and_needs_no_slot() -> None:
    board, notebook = made(Job.Kind.TENSORBOARD), made(Job.Kind.NOTEBOOK)
    assert (board.service.idle_timeout_seconds, notebook.service.idle_timeout_seconds) == (1800, None)
    assert (board.task.slots, notebook.task.slots) == (0, 1)
    assert (board.service.experiment_ids, board.description) == ([7], "TensorBoard")


@pytest.mark.parametrize(
    "report", [{"type": "ready", "port": 0}, {"type": "ready", "port": "22"}, {"type": "else"}, None]
)
def test_a_report_that_names_no_port_makes_nothing_ready(report: object) -> None:
    command = made(Job.Kind.SHELL)
    services.reported(command.task_id, report)
    assert Service.objects.get().ready_at is None


def test_the_keys_of_a_shell_are_its_own_and_reach_its_run_alone() -> None:
    command = made(Job.Kind.SHELL)
    member = running(command)
    run = describe(member.allocation, "cpu")
    host, user = shell_keys.of_host(command.pk), shell_keys.of_user(command.pk)
    assert run.entrypoint == ["python3", "-m", "trainmaster.serving", "shell"]
    assert public_of(run.environment["TRAINMASTER_SHELL_HOST_KEY"]) == host.public
    assert run.environment["TRAINMASTER_SHELL_AUTHORIZED_KEY"] == user.public == public_of(user.private)
    assert len({host.public, user.public, shell_keys.of_user("another").public}) == 3


def public_of(private: str) -> str:
    return asyncssh.import_private_key(private).export_public_key().decode().strip()
