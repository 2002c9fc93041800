"""Slots of runs that are over stay held while processes of theirs live: on a real host, with real processes."""

import subprocess
import sys
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from django.conf import LazySettings
from django.utils import timezone

from dispatch.keeping import deletion
from dispatch.passes import pool_pass, preview
from dispatch.runs import cleaning, effects, reconcile, settle
from dispatch.watching import outsiders
from events.models import Event
from experiments import transitions as experiments
from experiments.models import Experiment
from experiments.states import ExperimentState, TrialState
from hosts import registry
from hosts.models import Host, Slot
from jobs import cleaning as cleanings
from jobs import shares, transitions
from jobs.models import Allocation, Member, SlotHold
from jobs.states import MemberState, Reason
from logs import sentences
from shown import timeline
from shown.hosts import rows
from tests.dispatch.test_probing import ready_host
from tests.rig.clocks import clock_ahead
from tests.rig.world import attempt_of, members_of, submit_experiment, trial_of
from trainmaster.cli import host_rows
from webui.api import agents

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("redis_server"), pytest.mark.survive(13)]

Starts = Callable[[str], "subprocess.Popen[bytes]"]


@pytest.fixture
def machine(tmp_path: Path) -> Host:
    """This machine as a host with one slot."""
    host = ready_host("gpu1", tmp_path, transport="local", contact="reachable", last_seen_at=timezone.now())
    Slot.objects.create(host=host, index=0, kind=Slot.Kind.CPU)
    return host


@pytest.fixture
def starts() -> Iterator[Starts]:
    """Start a process with the marker of a run."""
    started = []

    def start(run_key: str) -> "subprocess.Popen[bytes]":
        command = [sys.executable, "-S", "-c", "import time; time.sleep(600)"]
        started.append(subprocess.Popen(command, env={"TRAINMASTER_RUN": run_key}))
        return started[-1]

    yield start
    for process in started:
        process.kill()
        process.wait()


def running(**more: Any) -> Member:
    """The only member of an experiment that runs."""
    experiment = submit_experiment(**more)
    pool_pass.run(experiment.job.pool_id)
    [member] = members_of(experiment)
    transitions.member_launched(member.pk, boot_id="")
    transitions.member_running(member.pk)
    Member.objects.filter(pk=member.pk).update(launched_at=timezone.now() - timedelta(seconds=30))
    return again(member)


def again(member: Member) -> Member:
    related = "host", "allocation__task__job__owner", "allocation__pool"
    return Member.objects.select_related(*related).get(pk=member.pk)


def experiment_of(member: Member) -> Experiment:
    return Experiment.objects.get(job=member.allocation.task.job)


def waits(experiment: Experiment) -> str:
    """All that keeps its trial waiting."""
    found = preview.blockers(experiment.job, timezone.now())[trial_of(experiment).task_id]
    return "; ".join(reason.sentence for reason in found)


def held() -> int:
    return SlotHold.objects.filter(released_at=None).count()


def test_the_next_job_waits_until_nothing_is_left_of_a_run_whose_folder_was_removed(
    machine: Host, starts: Starts
) -> None:
    member = running(max_restarts=0)
    process = starts(member.run_key)
    reconcile._settle(member, {"state": "remains", "pids": [process.pid]}, "", timezone.now())
    member = again(member)
    assert (member.state, member.exit_reason) == (MemberState.ENDED, Reason.RUN_VANISHED)
    assert member.cleaning_since and member.remains == [{"pid": process.pid}] and held() == 1
    following = submit_experiment(name="following")
    pool_pass.run(machine.pool_id)
    assert not trial_of(following).task.allocations.exists(), "never on a slot of which processes live"
    label = f"exp {experiment_of(member).pk}"
    assert f"being cleaned up after {label}" in waits(following)
    assert shares.by_user(machine.pool, None)[0].held == 0, "it is nobody's share"
    assert machine.pk in reconcile.hosts_to_ask()
    reconcile.host(machine.pk)
    assert process.wait(60) != 0
    assert not again(member).cleaning_since and held() == 0
    pool_pass.run(machine.pool_id)
    assert trial_of(following).task.allocations.count() == 1
    reasons = Event.objects.filter(kind=Event.Kind.MEMBER, subject=member.run_key)
    assert [*reasons.values_list("reason", flat=True)][-2:] == [Reason.CLEANING, Reason.CLEANED]


def test_the_host_is_asked_for_what_lives_and_it_is_ended(machine: Host, starts: Starts) -> None:
    member = running(max_restarts=0)
    process = starts(member.run_key)
    reconcile.host(machine.pk)
    assert process.wait(60) != 0
    member = again(member)
    assert member.exit_reason == Reason.RUN_VANISHED and not member.cleaning_since and held() == 0


def seen(member: Member, by: str | None = "root", seconds: object = 20.0) -> dict[str, Any]:
    """What a host says of a process on a GPU that carries the marker of this run."""
    return {"pid": 7, "user": by, "command": "python", "run": member.run_key, "by": by, "seconds": seconds}


@pytest.mark.parametrize(
    ("by", "seconds"), [("mallory", 20.0), ("ada", 2.0), ("ada", None), ("ada", "20"), (None, 20.0)]
)
def test_a_forged_marker_takes_no_slot_of_a_run_that_ended(
    machine: Host, by: str | None, seconds: object
) -> None:
    """Of another account, or begun after the run's end: whoever set it holds the GPU that they use, and no more.

    The run said an early end of itself.
    """
    Slot.objects.filter(host=machine).update(kind=Slot.Kind.CUDA, uuid="GPU-1")
    second = Slot.objects.create(host=machine, index=1, kind=Slot.Kind.CUDA, uuid="GPU-2")
    member = running(max_restarts=0, slots=2)
    settle.member_exited(member.pk, code=0, signal=None, ended_at=None, first_failure=None)
    Member.objects.filter(pk=member.pk).update(ended_at=timezone.now() - timedelta(hours=1))
    Allocation.objects.update(unix_user="ada", settled_at=timezone.now() - timedelta(seconds=15))
    outsiders.take_in(machine.pk, {"gpu_users": {"GPU-1": [], "GPU-2": [seen(member, by, seconds)]}})
    assert not again(member).cleaning_since and held() == 0
    assert list(machine.slots.filter(outside={})) == [machine.slots.get(index=0)]
    outsiders.take_in(machine.pk, {"gpu_users": {"GPU-1": [], "GPU-2": [seen(member, "ada", 16.0)]}})
    assert again(member).cleaning_since and held() == 2
    second.refresh_from_db()
    assert second.outside == {}


@pytest.mark.parametrize(("account", "login"), [("ada", "root"), ("", "ada")])
def test_the_marker_of_a_run_that_lives_hides_nobody_elses_process(
    machine: Host, account: str, login: str
) -> None:
    Slot.objects.filter(host=machine).update(kind=Slot.Kind.CUDA, uuid="GPU-1")
    Slot.objects.create(host=machine, index=1, kind=Slot.Kind.CUDA, uuid="GPU-2")
    Host.objects.filter(pk=machine.pk).update(facts={"account": {"name": login}})
    member = running()
    Allocation.objects.update(unix_user=account)
    own = SlotHold.objects.get().slot
    [other] = machine.slots.exclude(pk=own.pk)
    forged = seen(member, "mallory")
    outsiders.take_in(machine.pk, {"gpu_users": {own.uuid: [forged], other.uuid: [forged]}})
    assert list(machine.slots.filter(outside={})) == [own]
    outsiders.take_in(machine.pk, {"gpu_users": {own.uuid: [], other.uuid: [seen(member, "ada")]}})
    assert machine.slots.filter(outside={}).count() == 2


def test_a_process_of_a_run_that_ended_is_seen_on_its_gpu_and_its_slot_is_held_again(machine: Host) -> None:
    Slot.objects.filter(host=machine).update(kind=Slot.Kind.CUDA, uuid="GPU-1")
    member = running(max_restarts=0)
    settle.member_exited(member.pk, code=0, signal=None, ended_at=None, first_failure=None)
    assert held() == 0
    answer = {"gpu_users": {"GPU-1": [seen(member)]}}
    outsiders.take_in(machine.pk, answer)
    assert again(member).cleaning_since and held() == 1 and machine.slots.get().outside == {}
    outsiders.take_in(machine.pk, answer)
    assert Event.objects.filter(reason=Reason.CLEANING).count() == 1
    cleaning.take_in(machine.pk, [again(member)], {member.run_key: "x"})  # type: ignore[dict-item]
    cleaning.take_in(machine.pk, [again(member)], {member.run_key: {"left": [], "count": 0}})
    assert held() == 0


def test_what_another_run_has_been_given_since_stays_its_own(machine: Host) -> None:
    Slot.objects.filter(host=machine).update(kind=Slot.Kind.CUDA, uuid="GPU-1")
    member = running(max_restarts=0)
    settle.member_exited(member.pk, code=0, signal=None, ended_at=None, first_failure=None)
    other = running(name="other")
    outsiders.take_in(machine.pk, {"gpu_users": {"GPU-1": [seen(member)]}})
    assert again(member).cleaning_since and SlotHold.objects.get(released_at=None).member == other


@pytest.mark.survive(12)
def test_a_killed_launcher_leaves_a_gpu_that_is_looked_at_before_it_is_free(machine: Host) -> None:
    Slot.objects.filter(host=machine).update(kind=Slot.Kind.CUDA, uuid="GPU-1")
    member = running(max_restarts=0)
    settle.member_exited(member.pk, code=None, signal=None, ended_at=None, first_failure=None)
    assert held() == 1
    order = cleaning._order(again(member), timezone.now())
    assert order["devices"] == ["GPU-1"] and order["launched_seconds"] > 30 > order["ended_seconds"]
    reconcile.host(machine.pk)
    assert held() == 0


@pytest.mark.survive(14)
def test_processes_that_survive_sigkill_end_the_run_hold_its_slots_and_drain_the_host(
    machine: Host, settings: LazySettings
) -> None:
    settings.UNKILLABLE_SECONDS, settings.DRAIN_SECONDS = 60.0, 0.0
    member = running()
    experiments.kill(experiment_of(member).pk, actor="user:ada")
    answer = {"state": "running", "pids": [4711], "exit": None, "unshipped_bytes": 12, "outbox_bytes": 12}
    reconcile._settle(again(member), {**answer, "killed_seconds": 59.0}, "", timezone.now())
    assert again(member).state == MemberState.RUNNING
    reconcile._settle(again(member), {**answer, "killed_seconds": 61.0}, "", timezone.now())
    member = again(member)
    assert (member.state, member.exit_reason) == (MemberState.ENDED, Reason.STOP_TIMED_OUT)
    assert experiment_of(member).state == ExperimentState.CANCELED and held() == 1
    assert member.outbox_bytes == 12, "what is missing is still taken in"

    left = [{"pid": 4711, "user": "alice", "command": "python train.py", "state": "D"}]
    found = {member.run_key: {"left": left, "count": 1}}
    cleaning.take_in(machine.pk, [member], found)
    machine.refresh_from_db()
    assert machine.state == "ready", "it has not been killed for long enough"
    Member.objects.update(cleaning_since=timezone.now() - timedelta(seconds=70))
    cleaning.take_in(machine.pk, [again(member)], found)
    machine.refresh_from_db()
    assert machine.state == "draining" and held() == 1
    for part in (
        f"exp {experiment_of(member).pk}",
        "ada",
        "gpu1",
        "pid 4711",
        "account alice",
        "python train.py",
    ):
        assert part in machine.drain_reason

    registry.enable(machine.pk, actor="user:admin")
    cleaning.take_in(machine.pk, [again(member)], found)
    machine.refresh_from_db()
    assert machine.state == "ready" and not machine.drain_reason, "a person said otherwise"


@pytest.mark.survive(10, 14)
@pytest.mark.parametrize("seconds", [7200.0, -7200.0])
def test_a_clock_that_is_wrong_drains_no_host_for_a_cleanup_that_has_just_begun(
    seconds: float, machine: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    member = running(max_restarts=0)
    with clock_ahead(monkeypatch, seconds):
        settle.member_exited(member.pk, code=0, signal=None, ended_at=None, first_failure=None, left=[])
    with clock_ahead(monkeypatch, -seconds):
        cleaning.take_in(machine.pk, [again(member)], {member.run_key: {"left": [{"pid": 7}], "count": 1}})
    machine.refresh_from_db()
    assert not machine.draining
    Member.objects.update(cleaning_since=timezone.now() - timedelta(hours=1))
    with clock_ahead(monkeypatch, seconds):
        cleaning.take_in(machine.pk, [again(member)], {member.run_key: {"left": [{"pid": 7}], "count": 1}})
    machine.refresh_from_db()
    assert machine.draining


@pytest.mark.survive(14)
@pytest.mark.parametrize(
    ("left", "found"),
    [([7, "x", None], [{"pid": 7}]), ([], None), (None, None), ("7", None), ({"7": 7}, None)],
)
def test_a_runner_says_in_its_exit_record_what_survived(left: object, found: object, machine: Host) -> None:
    member = running()
    experiments.kill(experiment_of(member).pk, actor="user:ada")
    effects.exited(transitions.lock_member(member.pk), {"k": "exit", "code": 143, "left": left})
    member = again(member)
    assert member.state == MemberState.ENDED and held() == bool(found)
    assert member.remains == (found or [])
    assert (member.exit_reason == Reason.STOP_TIMED_OUT) == bool(found)
    assert experiment_of(member).state == ExperimentState.CANCELED


@pytest.mark.survive(14)
@pytest.mark.parametrize("by_person", [False, True])
def test_the_servers_own_drain_ends_with_its_reason_and_a_persons_does_not(
    by_person: bool, machine: Host, settings: LazySettings
) -> None:
    settings.UNKILLABLE_SECONDS = -60.0
    member = running(max_restarts=0)
    settle.member_exited(member.pk, code=0, signal=None, ended_at=None, first_failure=None, left=[{"pid": 7}])
    if by_person:
        registry.drain(machine.pk, actor="user:admin")
    cleaning.take_in(machine.pk, [again(member)], {member.run_key: {"left": [{"pid": 7}], "count": 1}})
    machine.refresh_from_db()
    assert machine.draining and machine.drain_reason.startswith("Drained by admin, ") is by_person
    assert bool(machine.drain_cause) is not by_person
    cleanings.done(member.pk)
    assert (machine.pk in reconcile.hosts_to_ask()) is not by_person
    reconcile.host(machine.pk)
    machine.refresh_from_db()
    assert (machine.draining, bool(machine.drain_reason), held()) == (by_person, by_person, 0)
    assert trial_of(experiment_of(member)).state == TrialState.COMPLETED


def test_it_is_said_wherever_slots_are_shown_and_in_the_log(machine: Host) -> None:
    member = running(max_restarts=0)
    left = [{"pid": 7, "user": "alice", "command": "python train.py", "state": "D"}]
    settle.member_exited(member.pk, code=0, signal=None, ended_at=None, first_failure=None, left=left)
    number = experiment_of(member).pk
    [row] = rows.of([machine])
    [shown] = row.slots
    assert shown.state == "cleaning" and row.counts["free"] == 0 == row.held
    assert shown.word == f"being cleaned up after test (exp {number}, ada): pid 7"
    slot = agents.encode_slot(shown).model_dump(mode="json")
    assert slot["container"]["parent"] == member.allocation_id and "heldBy" not in slot
    assert slot["cleaning"]["remains"] == left and slot["cleaning"]["username"] == "ada"
    assert shown.hold is None
    assert host_rows.used_by(slot).endswith("(ada): pid 7")
    cleaning.take_in(machine.pk, [again(member)], {member.run_key: {"left": [], "count": 0}})
    events = Event.objects.filter(kind=Event.Kind.MEMBER, subject=member.run_key).order_by("id")
    said = [found.text for event in events if (found := sentences.sentence(event))]
    assert said[-2:] == [
        "Some of its processes are still running on gpu1 (pid 7); they are being stopped.",
        "None of its processes are left on gpu1.",
    ]
    newest = [entry.sentence for entry in timeline.of(Event.objects.filter(subject=member.run_key))]
    assert newest[0] == "gpu1: no processes are left, and the slots are free"


def test_a_job_of_which_something_is_left_is_deleted_only_when_it_is_gone(machine: Host) -> None:
    member = running(max_restarts=0)
    settle.member_exited(member.pk, code=0, signal=None, ended_at=None, first_failure=None, left=[{"pid": 7}])
    number = experiment_of(member).pk
    Experiment.objects.filter(pk=number).update(state=ExperimentState.DELETING)
    assert not deletion.delete(number) and held() == 1
    cleaning.take_in(machine.pk, [again(member)], {member.run_key: {"left": [], "count": 0}})
    assert deletion.delete(number) and held() == 0


def test_slots_of_a_lost_host_are_free_only_when_it_has_been_looked_at(machine: Host, starts: Starts) -> None:
    member = running()
    process = starts(member.run_key)
    registry.declare_lost(machine.pk, actor="user:admin")
    reconcile.host_lost(machine.pk)
    assert again(member).exit_reason == Reason.HOST_LOST and held() == 1
    assert machine.pk not in reconcile.hosts_to_ask()
    Host.objects.filter(pk=machine.pk).update(admission=Host.Admission.READY)
    pool_pass.run(machine.pool_id)
    assert attempt_of(experiment_of(member)).number == 1
    reconcile.host(machine.pk)
    assert process.wait(60) != 0 and held() == 0
