"""A preemption's time to save counts from when the hosts were told, however long they were away before."""

from datetime import timedelta
from pathlib import Path

import pytest
from django.utils import timezone

from dispatch.runs import intake, stop
from hosts.models import Host
from jobs import leaving, transitions
from jobs.models import Allocation, Member
from jobs.states import MemberState, Reason, StopKind
from tests.rig.clocks import clock_ahead
from tests.rig.rows import make_gang

pytestmark = [pytest.mark.django_db, pytest.mark.survive(15)]
HAVE = frozenset({"preempt"})


@pytest.fixture
def gang() -> list[Member]:
    """Two members that run, asked an hour ago to save within no time at all."""
    members = make_gang(2)
    for member in members:
        transitions.member_launched(member.pk, boot_id="b")
        transitions.member_running(member.pk)
    preempt(members[0], 0)
    Allocation.objects.update(stop_requested_at=timezone.now() - timedelta(hours=1))
    return members


def preempt(member: Member, seconds: float) -> bool:
    return transitions.request_stop(
        member.allocation_id, StopKind.PREEMPT, reason=Reason.PAUSED_BY_USER, actor="user:admin",
        preemption_timeout_seconds=seconds,
    )  # fmt: skip


def attempt() -> Allocation:
    return Allocation.objects.get()


def test_what_was_never_asked_to_save_is_not_stopped(gang: list[Member]) -> None:
    assert stop.escalate() == 0, "both hosts are away"
    orders = [intake.signals(member.pk, member.allocation_id) for member in gang]
    assert all(order.preempt for order in orders) and stop.escalate() == 0, "an answer may be lost on its way"
    intake.signals(gang[0].pk, gang[0].allocation_id, HAVE)
    assert stop.escalate() == 0, "the other host is still away"
    intake.signals(gang[1].pk, gang[1].allocation_id, HAVE)
    assert stop.escalate() == 1 and attempt().stop_kind == StopKind.STOP


def test_the_time_counts_from_the_last_member_that_was_told(gang: list[Member]) -> None:
    Allocation.objects.update(stop_save_seconds=600)
    leaving.preempt_told([gang[0].pk])
    Member.objects.update(preempt_told_at=timezone.now() - timedelta(hours=1))
    Member.objects.filter(pk=gang[1].pk).update(preempt_told_at=None)
    leaving.preempt_told([member.pk for member in gang])
    told = max(member.preempt_told_at for member in Member.objects.all() if member.preempt_told_at)
    assert stop.escalate() == 0
    assert attempt().stop_deadline_at == told + timedelta(seconds=600)
    assert timezone.now() - told < timedelta(minutes=5), "each is told once, and the last one is the second"


def test_what_has_ended_or_never_began_is_not_waited_for(gang: list[Member]) -> None:
    leaving.preempt_told([gang[0].pk])
    Member.objects.filter(pk=gang[1].pk).update(state=MemberState.ASSIGNED, launch_in_doubt=True)
    assert stop.escalate() == 0, "nobody knows whether it was started"
    Member.objects.filter(pk=gang[1].pk).update(launch_in_doubt=False)
    assert stop.escalate() == 1


def test_code_that_has_acknowledged_answers_for_its_gang(gang: list[Member]) -> None:
    transitions.preempt_acknowledged(gang[0].allocation_id)
    assert stop.escalate() == 1


def test_a_time_that_is_made_shorter_before_it_counts_stays_so(gang: list[Member]) -> None:
    Allocation.objects.update(stop_save_seconds=600)
    assert preempt(gang[0], 60) and not preempt(gang[0], 120)
    leaving.preempt_told([member.pk for member in gang])
    stop.escalate()
    deadline = attempt().stop_deadline_at
    assert deadline is not None and deadline < timezone.now() + timedelta(seconds=61)
    assert preempt(gang[0], 1) and not preempt(gang[0], 60)


def test_the_host_confirms_by_ssh_what_it_has_written(tmp_path: Path) -> None:
    member = make_gang()[0]
    Host.objects.update(transport=Host.Transport.LOCAL, workdir=str(tmp_path))
    transitions.member_launched(member.pk, boot_id="b")
    preempt(member, 600)
    stop.stop(member.allocation_id)
    member.refresh_from_db()
    assert member.stop_sent_at and member.preempt_told_at is None, "the host has no such run"
    control = tmp_path / "runs" / member.run_key / "control"
    control.mkdir(parents=True)
    Member.objects.update(stop_sent_at=None)
    stop.stop(member.allocation_id)
    member.refresh_from_db()
    assert member.preempt_told_at and (control / "preempt.json").exists()


def test_a_shorter_grace_counts_however_long_ago_the_stop_was_asked_for(gang: list[Member]) -> None:
    def kill(grace: float) -> bool:
        return transitions.request_stop(
            gang[0].allocation_id,
            StopKind.STOP,
            reason=Reason.KILLED_BY_USER,
            actor="user:a",
            grace_seconds=grace,
        )

    assert kill(30)
    Allocation.objects.update(stop_requested_at=timezone.now() - timedelta(hours=1))
    assert kill(5) and not kill(5) and not kill(10), (
        "the host is still away: it will count from when it is told"
    )
    assert attempt().stop_grace_seconds == 5


@pytest.mark.survive(10)
@pytest.mark.parametrize("seconds", [7200.0, -7200.0])
def test_a_clock_that_is_wrong_neither_cuts_nor_lengthens_the_time_to_save(
    seconds: float, gang: list[Member], monkeypatch: pytest.MonkeyPatch
) -> None:
    Allocation.objects.update(stop_save_seconds=600)
    with clock_ahead(monkeypatch, seconds):
        leaving.preempt_told([member.pk for member in gang])
        assert stop.escalate() == 0
    assert stop.escalate() == 0
    deadline = attempt().stop_deadline_at
    assert deadline is not None and abs(deadline - timezone.now()) < timedelta(seconds=601)
    Allocation.objects.update(stop_deadline_at=timezone.now() - timedelta(seconds=1))
    with clock_ahead(monkeypatch, seconds):
        assert stop.escalate() == 1
