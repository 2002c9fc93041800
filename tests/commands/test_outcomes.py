"""What ends a command, and what is said of it then."""

from __future__ import annotations

from datetime import timedelta

import pytest
from django.conf import LazySettings
from django.utils import timezone

from commands import submit, transitions
from commands.config import check
from commands.models import Command
from commands.states import CommandState
from dispatch.passes import pool_pass
from dispatch.runs import kinds, launch, settle, spec, stop
from events.models import Event
from hosts.models import ResourcePool
from hosts.pools import default_pool
from jobs import transitions as jobs
from jobs.models import Allocation, Member, SlotHold, Task
from jobs.states import AllocationState, JobState, MemberState, Reason, TaskState
from submissions import contexts
from tests.rig.world import make_host, make_user
from trainmaster.environment import build_environment
from trainmaster.protocol import check_spec

pytestmark = pytest.mark.django_db


def make_command(entrypoint: object = "true", **resources: object) -> Command:
    return submit.create(
        owner=make_user(),
        config=check({"entrypoint": entrypoint, "resources": resources}),
        context=contexts.empty(),
        workspace_number=1,
        idempotency_key=None,
        actor="user:ada",
    )


def started(command: Command) -> Member:
    """The command has its slots, and its host said that it runs."""
    pool_pass.run(default_pool().pk)
    member = Member.objects.select_related("host", "allocation__task__job", "allocation__pool").get(
        allocation__task=command.task
    )
    jobs.member_launched(member.pk, boot_id="b")
    jobs.member_running(member.pk)
    return member


def exited(member: Member, code: int | None, signal: int | None = None) -> Command:
    settle.member_exited(member.pk, code=code, signal=signal, ended_at=1.0, first_failure=None, boot_id="b")
    return Command.objects.select_related("job", "task").get(task=member.allocation.task)


def assert_over(command: Command) -> None:
    """Nothing of it is left in the queue, and nothing is tried again."""
    assert (command.task.state, command.job.state) == (TaskState.ENDED, JobState.ENDED)
    assert command.ended_at is not None
    assert not SlotHold.objects.filter(released_at=None).exists()
    assert pool_pass.run(default_pool().pk) >= 0
    assert Allocation.objects.count() == 1


@pytest.mark.parametrize(
    ("code", "signal", "state", "ending"),
    [
        (0, None, CommandState.COMPLETED, "exit code 0 on gpu1"),
        (3, None, CommandState.ERROR, "exit code 3 on gpu1"),
        (127, None, CommandState.ERROR, "exit code 127 (command not found) on gpu1"),
        (137, 9, CommandState.ERROR, "exit code 137, killed by SIGKILL on gpu1"),
    ],
)
def test_the_exit_code_decides(code: int, signal: int | None, state: CommandState, ending: str) -> None:
    make_host("gpu1", 1)
    command = exited(started(make_command()), code, signal)
    assert (command.state, command.exit_code, command.ending) == (state, code, ending)
    assert_over(command)


def test_a_lost_host_is_a_failure_without_an_exit_code() -> None:
    make_host("gpu1", 1)
    member = started(make_command())
    settle.member_over(member.pk, reason=Reason.HOST_LOST, detail={"rank": None, "host": "gpu1", "member": 0})
    command = Command.objects.select_related("job", "task").get()
    assert (command.state, command.exit_code) == (CommandState.ERROR, None)
    assert command.ending == "its host was declared lost (gpu1)"
    assert_over(command)


@pytest.mark.survive(44)
def test_a_command_that_never_started_is_tried_again_and_then_says_why(settings: LazySettings) -> None:
    make_host("gpu1", 1)
    command = make_command()
    for _ in range(settings.LAUNCH_ATTEMPTS):
        assert Command.objects.get().state == CommandState.ACTIVE
        Task.objects.update(not_before=None)
        pool_pass.run(default_pool().pk)
        member = Member.objects.get(allocation__task=command.task, state=MemberState.ASSIGNED)
        settle.member_over(member.pk, reason=Reason.LAUNCH_FAILED, detail={"sentence": "The disk is full."})
    assert Command.objects.get().ending == "could not be started (gpu1), The disk is full."


def test_a_kill_stops_the_run_and_names_who_asked() -> None:
    make_host("gpu1", 1)
    member = started(make_command())
    transitions.kill(member.allocation.task_id, actor="user:ada")
    assert Command.objects.get().state == CommandState.STOPPING_KILLED
    transitions.kill(member.allocation.task_id, actor="user:bob")  # the first wish stands
    command = exited(member, 143, 15)
    assert (command.state, command.ending) == (CommandState.CANCELED, "killed by ada, exit code 143")
    assert_over(command)


def test_a_time_limit_is_a_failure_whatever_the_program_makes_of_the_signal() -> None:
    make_host("gpu1", 1)
    member = started(make_command(max_time="1s"))
    stop.watch_limits(timezone.now() + timedelta(seconds=2))
    command = exited(member, 0)
    assert (command.state, command.exit_code) == (CommandState.ERROR, 0)
    assert command.ending == "its time limit was reached (gpu1), exit code 0"
    assert_over(command)


def test_a_kill_that_comes_before_the_launch_ends_it_unlaunched() -> None:
    make_host("gpu1", 1)
    command = make_command()
    pool_pass.run(default_pool().pk)
    transitions.kill(command.pk, actor="user:ada")
    launch.launch(Member.objects.get().pk)
    command.refresh_from_db()
    assert (command.state, command.ending) == (CommandState.CANCELED, "killed by ada")
    assert Member.objects.get().state == MemberState.ENDED


def test_every_step_leaves_an_event() -> None:
    make_host("gpu1", 1)
    command = exited(started(make_command()), 3)
    steps = Event.objects.filter(kind=Event.Kind.COMMAND, subject=str(command.pk)).order_by("pk")
    assert [(event.from_state, event.to_state, event.reason) for event in steps] == [
        ("", "ACTIVE", "submitted"), ("ACTIVE", "ERROR", "command_failed"),
    ]  # fmt: skip


def test_the_run_gets_its_variables_its_slots_and_no_trial() -> None:
    host = make_host("gpu1", 2)
    host.slots.update(kind="cuda")
    for slot in host.slots.all():
        slot.uuid = f"GPU-{slot.index}"
        slot.save()
    command = make_command(["env"], slots=2)
    Command.objects.filter(pk=command.pk).update(
        config={**command.config, "environment": {"environment_variables": {"cuda": ["A=1"], "cpu": ["A=2"]}}}
    )
    member = started(command)
    run = kinds.describe(member.allocation, "cuda")
    built = check_spec(spec.build(member, [member], run))
    assert (built["task_type"], built["trial"], built["entrypoint"]) == ("COMMAND", None, "env")
    environment = build_environment(
        built, run_dir="/r", code_dir="/c", bundle="/b", server_url="", inherited={}, account={}
    )
    assert environment["A"] == "1"
    assert environment["CUDA_VISIBLE_DEVICES"] == "GPU-0,GPU-1"
    assert environment["DET_TASK_TYPE"] == "COMMAND"
    assert "DET_TRIAL_ID" not in environment


def test_it_never_spreads_over_two_hosts() -> None:
    make_host("gpu1", 2)
    make_host("gpu2", 2)
    ResourcePool.objects.update(launch_error=False)
    make_command(slots=4)
    pool_pass.run(default_pool().pk)
    assert not Allocation.objects.exclude(state=AllocationState.TERMINATED).exists()


@pytest.mark.survive(6)
def test_what_ended_while_the_server_was_away_gets_the_time_at_which_it_ended() -> None:
    make_host("gpu1", 1)
    member = started(make_command())
    ended = timezone.now() - timedelta(hours=1)
    Allocation.objects.update(assigned_at=ended - timedelta(hours=1))
    Member.objects.update(started_at=ended - timedelta(minutes=50))
    settle.member_exited(member.pk, code=0, signal=None, ended_at=ended.timestamp(), first_failure=None)
    command = Command.objects.select_related("job").get()
    task = Task.objects.get(pk=command.task_id)
    for row in (command, command.job, task, Allocation.objects.get(), Member.objects.get()):
        assert row.ended_at and abs(row.ended_at - ended) < timedelta(seconds=1), row
