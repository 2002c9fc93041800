"""Launches whose outcome is not known: nothing is taken for dead that may run, nothing waits that cannot."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest
from django.conf import LazySettings
from django.utils import timezone

from dispatch.passes import pool_pass
from dispatch.runs import launch, reconcile
from dispatch.ssh.contact_errors import Unreachable, VerbFailed
from experiments import transitions as experiments
from experiments.models import Experiment
from experiments.states import TrialState
from hosts.models import Host
from jobs import transitions
from jobs.models import Allocation, Member, SlotHold
from jobs.states import MemberState, Reason
from logs import why_stopped
from tests.rig.clocks import clock_ahead
from tests.rig.ports import free_port
from tests.rig.world import make_host, members_of, submit_experiment, trial_of
from trainmaster.host import launch_lock
from trainmaster.protocol import MARKER

pytestmark = pytest.mark.django_db


def assigned(workdir: Path | None = None) -> Member:
    """A member that waits to be launched: on this machine, or where `workdir` is None on a host that nobody reaches."""
    host = make_host("gpu0", 1)
    host.workdir = str(workdir or "/nowhere")
    if workdir is None:
        host.transport, host.address, host.port = Host.Transport.SSH, "127.0.0.1", free_port()
        host.login_user, host.host_key = "root", "ssh-ed25519 AAAA"
    host.save()
    experiment = submit_experiment()
    pool_pass.run(experiment.job.pool_id)
    (member,) = members_of(experiment)
    return Member.objects.select_related("host", "allocation__task__job").get(pk=member.pk)


def attempted(member: Member, error: Unreachable | VerbFailed) -> Member:
    """One attempt to launch that ended with `error`."""
    Member.objects.filter(pk=member.pk).update(launch_claimed_until=None)
    assert transitions.claim_launch(member.pk, 60)
    member.refresh_from_db()
    doubt = member.launch_in_doubt
    transitions.note_launch_sent(member.pk)
    member.launch_in_doubt = doubt
    launch._failed(member, error)
    member.refresh_from_db()
    return member


@pytest.mark.survive(20)
def test_a_launch_whose_answer_was_lost_ends_by_the_hosts_word_alone(settings: LazySettings) -> None:
    member = attempted(assigned(), Unreachable("The link broke.", delivered=True))
    for _ in range(settings.LAUNCH_ATTEMPTS + 1):
        member = attempted(member, Unreachable("No route to host."))
    assert member.state == MemberState.ASSIGNED and member.launch_in_doubt
    assert SlotHold.objects.filter(released_at=None).exists(), "it may run there: its slots stay its own"
    reconcile._settle(member, {"state": "running"}, "boot", None)
    member.refresh_from_db()
    assert member.state == MemberState.LAUNCHED


def test_a_launch_that_never_arrived_is_given_up_after_its_attempts(settings: LazySettings) -> None:
    member = assigned()
    for _ in range(settings.LAUNCH_ATTEMPTS):
        member = attempted(member, Unreachable("No route to host."))
    assert member.state == MemberState.ENDED


@pytest.mark.survive(20)
def test_a_no_settles_a_launch_in_doubt_only_once_no_other_can_start(tmp_path: Path) -> None:
    """An earlier launch, whose answer was lost, may still be on its way."""
    far = attempted(assigned(), Unreachable("The link broke.", delivered=True))
    far = attempted(far, VerbFailed("disk", "The disk is full."))
    assert far.state == MemberState.ASSIGNED and far.launch_in_doubt
    Host.objects.update(transport=Host.Transport.LOCAL, workdir=str(tmp_path))
    member = attempted(Member.objects.select_related("host").get(), VerbFailed("disk", "The disk is full."))
    assert member.state == MemberState.ENDED
    assert (tmp_path / "runs" / f".{member.run_key}.revoked").exists()
    with pytest.raises(VerbFailed, match="has abandoned the launch"):
        late = Member.objects.select_related("host", "allocation__pool").get()
        launch._send(late, *launch._order(late))


@pytest.mark.survive(20)
def test_a_verb_that_broke_after_it_had_begun_leaves_a_doubt() -> None:
    member = attempted(assigned(), VerbFailed("broke", "It was killed.", delivered=True))
    assert member.state == MemberState.ASSIGNED and member.launch_in_doubt


def test_a_stop_ends_what_was_never_launched_even_if_its_message_was_lost() -> None:
    member = attempted(assigned(), Unreachable("No route to host."))
    experiments.kill(int(member.allocation.task.job.entity_id), actor="user:ada")
    Member.objects.filter(pk=member.pk).update(launch_claimed_until=None)
    member.refresh_from_db()
    assert transitions.ask_for_launches_again(0.0) == 1
    launch.launch(member.pk)
    member.refresh_from_db()
    assert member.state == MemberState.ENDED


def test_a_host_that_cannot_look_at_one_run_settles_nothing_of_it() -> None:
    member = assigned()
    transitions.member_launched(member.pk, boot_id="boot")
    member.refresh_from_db()
    reconcile._settle(member, {"error": "account", "message": "It broke off."}, "boot", None)
    member.refresh_from_db()
    assert member.state == MemberState.LAUNCHED


@pytest.mark.survive(43)
def test_a_run_that_holds_its_launch_lock_after_its_start_has_vanished_all_the_same() -> None:
    member = assigned()
    transitions.member_launched(member.pk, boot_id="boot")
    member.refresh_from_db()
    reconcile._settle(member, {"state": "starting", "pids": []}, "boot", timezone.now())
    member.refresh_from_db()
    assert (member.state, member.exit_reason) == (MemberState.ENDED, Reason.RUN_VANISHED)


def launched_again(member: Member) -> Member:
    Member.objects.filter(pk=member.pk).update(launch_claimed_until=None)
    launch.launch(member.pk)
    return Member.objects.get(pk=member.pk)


@pytest.mark.survive(20)
def test_a_host_that_knows_nothing_after_the_last_attempt_ends_the_launch_for_good(
    settings: LazySettings, tmp_path: Path
) -> None:
    member = assigned(tmp_path)
    for _ in range(settings.LAUNCH_ATTEMPTS):
        member = attempted(member, Unreachable("The link broke.", delivered=True))
    reconcile._settle(member, {"state": "absent"}, "boot", None)
    member.refresh_from_db()
    assert member.state == MemberState.ASSIGNED, "it may be on its way"
    assert launched_again(member).state == MemberState.ENDED
    assert (tmp_path / "runs" / f".{member.run_key}.revoked").exists()


@pytest.mark.survive(13, 20)
def test_a_launch_in_doubt_whose_ranks_live_without_a_folder_is_not_sent_again(tmp_path: Path) -> None:
    member = attempted(assigned(tmp_path), Unreachable("It did not answer.", delivered=True))
    ranks = subprocess.Popen(["sleep", "600"], env={MARKER: member.run_key})
    try:
        member = launched_again(member)
    finally:
        ranks.kill()
        ranks.wait()
    assert member.state == MemberState.LAUNCHED
    assert not (tmp_path / "runs").exists(), "it was only asked about"


@pytest.mark.skipif(os.getuid() != 0, reason="needs root, to give a folder away")
def test_a_launch_in_doubt_is_not_what_another_account_has_put_in_its_place(tmp_path: Path) -> None:
    member = attempted(assigned(tmp_path), Unreachable("It did not answer.", delivered=True))
    run = tmp_path / "runs" / member.run_key
    run.mkdir(parents=True)
    (run / "state.json").write_text('{"boot_id": "x"}')
    (run / "exit.json").write_text('{"code": 0}')
    shutil.chown(run, "daemon")
    member = launched_again(member)
    assert (member.state, member.exit_reason) == (MemberState.ENDED, Reason.LAUNCH_FAILED)


@pytest.mark.survive(20)
def test_a_launch_in_doubt_waits_while_the_host_says_that_it_is_being_started(
    settings: LazySettings, tmp_path: Path
) -> None:
    member = attempted(assigned(tmp_path), Unreachable("It did not answer.", delivered=True))
    (tmp_path / "runs").mkdir()
    lock = launch_lock.take(tmp_path / "runs" / f".{member.run_key}.lock", 0.0)  # as its launcher holds it
    assert lock is not None
    for _ in range(settings.LAUNCH_ATTEMPTS + 2):
        seen = launched_again(member)
        assert (seen.state, seen.launch_attempts) == (MemberState.ASSIGNED, 1)
    assert seen.last_error == "gpu0 is still starting it."
    settings.LAUNCH_GIVE_UP_SECONDS = 0
    os.close(lock)
    experiments.kill(int(member.allocation.task.job.entity_id), actor="user:ada")
    assert launched_again(member).state == MemberState.ENDED


def test_a_launch_that_is_over_is_not_sent_by_a_worker_that_was_frozen() -> None:
    member = attempted(assigned(), VerbFailed("disk", "The disk is full."))
    assert member.state == MemberState.ENDED
    assert not transitions.note_launch_sent(member.pk)


@pytest.mark.survive(24)
@pytest.mark.parametrize("sent", [False, True])
def test_a_launch_that_kills_its_worker_is_tried_three_times_and_then_says_so(
    sent: bool, settings: LazySettings, tmp_path: Path
) -> None:
    member = assigned(tmp_path)
    for _ in range(settings.LAUNCH_ATTEMPTS):
        assert transitions.claim_launch(member.pk, 60)
        if sent:
            transitions.note_launch_sent(member.pk)
        Member.objects.update(
            launch_claimed_until=timezone.now()
        )  # the worker is gone; so is its claim after a while
    launch.launch(member.pk)
    allocation = Allocation.objects.get()
    assert allocation.exit_detail["sentence"] == "The launch crashed the server's worker 3 times."
    assert trial_of(Experiment.objects.get()).state == TrialState.ERROR
    assert "Not retried: every process that tries to start it crashes." in why_stopped._what_follows(
        allocation
    )


@pytest.mark.survive(10, 20)
def test_a_worker_whose_clock_is_wrong_neither_takes_a_claim_away_nor_keeps_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    member = assigned()
    with clock_ahead(monkeypatch, -3600):
        assert transitions.claim_launch(member.pk, 60)
    assert not transitions.claim_launch(member.pk, 60), "another worker is at it"
    with clock_ahead(monkeypatch, 3600):
        assert not transitions.claim_launch(member.pk, 60)
        transitions.note_launch_error(member.pk, "No route to host.", 0.0, in_doubt=False)
    assert transitions.claim_launch(member.pk, 60)
