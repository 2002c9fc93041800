"""A host that cannot start anything is left out: first by the task that failed there, then by everybody."""

from pathlib import Path

import pytest
from django.conf import LazySettings
from django.utils import timezone

from dispatch.passes import pool_pass, preview
from dispatch.runs import launch, settle
from dispatch.ssh.contact_errors import LoginRefused, RemoteError, Unreachable, VerbFailed
from events.models import Event
from experiments.models import Experiment
from experiments.states import ExperimentState
from hosts import admitting, failed_starts, registry, server_drains
from hosts.models import Host
from hosts.pools import default_pool
from jobs import transitions
from jobs.models import Allocation, Member, Task
from jobs.states import MemberState, Reason, TaskState
from notifications import occurrences
from tests.rig.world import make_host, submit_experiment, trial_of

pytestmark = pytest.mark.django_db
DISK_FULL = VerbFailed("disk", "No space left on /var/lib/trainmaster.")


def attempt(*, at_once: bool = True) -> dict[str, Member]:
    """A pass, `at_once` without any back-off; what has slots now and was not launched, by host."""
    if at_once:
        Task.objects.update(not_before=None)
    pool_pass.run(default_pool().pk)
    open_members = Member.objects.filter(state=MemberState.ASSIGNED)
    return {
        member.host.name: member
        for member in open_members.select_related("host", "allocation__task__job", "allocation__pool")
    }


def failing(member: Member, error: RemoteError = DISK_FULL) -> None:
    """Its launch ends with `error`, which no further try would change."""
    Member.objects.filter(pk=member.pk).update(launch_attempts=99)
    launch._failed(Member.objects.select_related("host", "allocation__task__job").get(pk=member.pk), error)


def state_of(experiment: Experiment) -> str:
    experiment.refresh_from_db()
    return str(experiment.state)


def sentences(experiment: Experiment) -> str:
    (reasons,) = preview.blockers(experiment.job, timezone.now()).values()
    return " ".join(reason.sentence for reason in reasons)


@pytest.mark.survive(44)
def test_a_task_that_could_not_start_on_a_host_is_tried_on_another_one() -> None:
    make_host("broken", 1)
    make_host("sound", 1)
    experiment = submit_experiment()
    ((first, member),) = attempt().items()
    failing(member)
    ((second, _),) = attempt().items()
    assert second != first
    assert trial_of(experiment).task.state == TaskState.RUNNING


@pytest.mark.survive(44)
def test_a_task_waits_for_another_host_and_says_why_while_the_broken_one_is_free() -> None:
    sound = make_host("sound", 1)
    submit_experiment(name="other")
    assert set(attempt()) == {"sound"}
    make_host("broken", 1)
    experiment = submit_experiment()
    failing(attempt()["broken"])
    assert set(attempt()) == {"sound"}, "the broken host is free, and left out"
    waits = sentences(experiment)
    assert "it could not be started on broken and waits for another host" in waits
    assert "broken (it could not be started there)" in waits
    registry.disable(sound.pk, actor="user:root")
    assert "broken" in attempt(), "there rather than nowhere"


@pytest.mark.survive(44)
def test_the_only_host_of_a_pool_is_tried_again_and_then_named(settings: LazySettings) -> None:
    make_host("only", 1)
    experiment = submit_experiment()
    for _ in range(settings.LAUNCH_ATTEMPTS):
        failing(attempt()["only"])
    assert state_of(experiment) == ExperimentState.ERROR
    assert Allocation.objects.latest("number").exit_detail["sentence"] == str(DISK_FULL)
    assert not Host.objects.get().draining, "one task alone says little of a host"


@pytest.mark.survive(44)
@pytest.mark.parametrize("error", [DISK_FULL, LoginRefused("The login was refused.")])
def test_a_host_that_fails_every_start_is_drained_and_nobody_else_pays(
    error: RemoteError, settings: LazySettings
) -> None:
    broken = make_host("broken", 1)
    experiments = [submit_experiment(name=f"job{n}") for n in range(settings.HOST_FAILED_STARTS)]
    for _ in experiments:
        failing(attempt(at_once=False)["broken"], error)
    broken.refresh_from_db()
    assert broken.draining and str(error).rstrip(".") in broken.drain_reason
    event = Event.objects.get(reason=failed_starts.REASON, actor="server", subject=str(broken.pk))
    told = occurrences.of_event(event)
    assert told is not None and broken.drain_reason in told.facts["sentence"]
    assert attempt() == {}
    assert all(state_of(each) == ExperimentState.ACTIVE for each in experiments)
    assert "broken is draining after failed starts" in sentences(experiments[0])
    registry.enable(broken.pk, actor="user:root")
    broken.refresh_from_db()
    assert (broken.draining, broken.failed_starts, broken.drain_reason) == (False, [], "")
    for _ in range(settings.LAUNCH_ATTEMPTS - 1):  # none of what was before counts
        failing(attempt()["broken"], error)
    assert all(state_of(each) == ExperimentState.ACTIVE for each in experiments)
    assert "broken" in attempt()


def test_a_start_that_succeeds_ends_the_row_of_a_host(settings: LazySettings) -> None:
    host = make_host("gpu", 1)
    for number in range(settings.HOST_FAILED_STARTS - 1):
        submit_experiment(name=f"job{number}")
        failing(attempt()["gpu"])
    transitions.member_launched(attempt()["gpu"].pk, boot_id="b")
    host.refresh_from_db()
    assert host.failed_starts == []


def test_runs_that_are_at_fault_themselves_drain_no_host(settings: LazySettings) -> None:
    make_host("gpu", 1)
    for number in range(settings.HOST_FAILED_STARTS + 1):
        submit_experiment(name=f"job{number}")
        failing(attempt()["gpu"], VerbFailed("no_account", "This host has no account 'ada'."))
    assert not Host.objects.get().draining


def test_a_host_that_was_never_reached_counts_against_no_task(settings: LazySettings) -> None:
    make_host("far", 1)
    experiment = submit_experiment()
    for _ in range(settings.LAUNCH_ATTEMPTS + 2):
        failing(attempt()["far"], Unreachable("No route to host."))
    assert state_of(experiment) == ExperimentState.ACTIVE
    assert not Host.objects.get().draining


def test_a_task_that_could_start_begins_its_count_anew(settings: LazySettings) -> None:
    make_host("gpu", 1)
    experiment = submit_experiment()
    for _ in range(settings.LAUNCH_ATTEMPTS - 1):
        failing(attempt()["gpu"])
    member = attempt()["gpu"]
    transitions.member_launched(member.pk, boot_id="b")
    transitions.member_running(member.pk)
    settle.member_over(member.pk, reason=Reason.HOST_RESTARTED)
    assert trial_of(experiment).task.failed_starts == []


@pytest.mark.survive(44)
def test_a_host_where_no_folder_can_be_made_is_drained_by_its_own_word(
    settings: LazySettings, tmp_path: Path
) -> None:
    (tmp_path / "file").touch()
    make_host("broken", 1)
    Host.objects.update(workdir=str(tmp_path / "file" / "workdir"))
    experiments = [submit_experiment(name=f"job{n}") for n in range(settings.HOST_FAILED_STARTS)]
    for _ in experiments:
        launch.launch(attempt(at_once=False)["broken"].pk)
    broken = Host.objects.get()
    assert broken.draining and "Not a directory" in broken.drain_reason
    assert all(state_of(each) == ExperimentState.ACTIVE for each in experiments)


def drained_for_failed_starts(settings: LazySettings, number: int = 3) -> Host:
    """A host that the server drains since it could start nothing."""
    settings.HOST_FAILED_STARTS = number
    host = make_host("gpu1", 1)
    for each in range(number):
        failed_starts.note(host.pk, f"task{each}", str(DISK_FULL))
    host.refresh_from_db()
    return host


@pytest.mark.survive(14, 44)
@pytest.mark.parametrize("first", ["cleanup", "failed starts"])
def test_a_host_that_fails_every_start_stays_drained_when_its_cleanup_is_over(
    first: str, settings: LazySettings
) -> None:
    settings.HOST_FAILED_STARTS = 2
    host = make_host("gpu1", 1)
    if first == "cleanup":
        server_drains.drain_for_cleanup(host.pk, "pid 7 survived SIGKILL.")
    for task in ("one", "other"):
        failed_starts.note(host.pk, task, str(DISK_FULL))
    server_drains.drain_for_cleanup(host.pk, "pid 7 survived SIGKILL.")
    assert not server_drains.lift_drain(host.pk)
    host.refresh_from_db()
    assert host.draining and str(DISK_FULL).rstrip(".") in host.why_not_used
    registry.enable(host.pk, actor="user:root")
    host.refresh_from_db()
    assert (host.draining, host.drain_cause, host.why_not_used) == (False, "", "")


@pytest.mark.survive(44)
def test_a_drained_host_says_why_until_a_person_decides(settings: LazySettings) -> None:
    host = drained_for_failed_starts(settings)
    registry.admit_again(host.pk, actor="user:root")
    assert admitting.ready(host.pk, [])
    host.refresh_from_db()
    assert host.draining and "could not start 3 tasks in a row" in host.why_not_used
    registry.disable(host.pk, actor="user:root")
    host.refresh_from_db()
    assert host.why_not_used.startswith("Disabled by "), (
        "a person has disabled it: the server drains it no more"
    )
