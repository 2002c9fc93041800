"""The pulse as it is kept and read: one statement each, ages by the server's clock, silent hosts left out."""

from datetime import timedelta
from typing import Any

import pytest
from django.utils import timezone
from pytest_django import DjangoAssertNumQueries

from jobs.models import Member
from jobs.states import MemberState
from logs import pulse
from logs.models import MemberPulse

pytestmark = pytest.mark.django_db


def said(rank: int, **more: Any) -> dict[str, Any]:
    """As a runner says it of a rank that is in step."""
    sign = {
        "step": 7,
        "calls": 9,
        "waits": False,
        "beats": 18,
        "doing": "",
        "beat_seconds": 0.4,
        "gap_seconds": 1.0,
    }
    facts = {
        "rank": rank,
        "state": "S",
        "pid": 100 + rank,
        "state_seconds": 1.0,
        "cpu": 0.9,
        "idle_seconds": 0.1,
    }
    return {**facts, **sign, **more}


def older(member: Member, seconds: float) -> None:
    MemberPulse.objects.filter(member=member).update(at=timezone.now() - timedelta(seconds=seconds))


def test_what_a_runner_says_replaces_what_it_said_before(
    member: Member, django_assert_num_queries: DjangoAssertNumQueries
) -> None:
    pulse.keep(member.pk, [said(0), said(1)])
    with django_assert_num_queries(1):
        pulse.keep(member.pk, [said(1, step=8)])
    with django_assert_num_queries(1):
        (found,) = pulse.of_task(member.allocation.task_id)
    assert (found.rank, found.host, found.step, found.active) == (1, member.host.name, 8, True)
    assert 0.4 <= (found.step_age_seconds or 0) < 5 and found.mark is None


def test_a_runner_without_a_pulse_costs_nothing(
    member: Member, django_assert_num_queries: DjangoAssertNumQueries
) -> None:
    with django_assert_num_queries(0):
        pulse.keep(member.pk, None)
        pulse.keep(member.pk, [])


def test_a_stopped_rank_is_marked_and_not_active(member: Member) -> None:
    pulse.keep(member.pk, [said(rank) for rank in range(3)] + [said(3, state="T", state_seconds=4.0)])
    found = pulse.of_task(member.allocation.task_id)
    assert [one.mark is not None for one in found] == [False, False, False, True]
    assert not found[3].active and "is stopped" in str(found[3].mark)


def test_a_silent_host_is_no_evidence_and_none_of_its_ranks_is_marked(member: Member) -> None:
    pulse.keep(member.pk, [said(0), said(1), said(2, state="T", state_seconds=60.0)])
    older(member, pulse.SILENT_SECONDS + 1)
    found = pulse.of_task(member.allocation.task_id)
    assert [(one.mark, one.active, one.state) for one in found] == [(None, False, "")] * 3
    assert all((one.step_age_seconds or 0) > pulse.SILENT_SECONDS for one in found)


def test_a_member_that_has_ended_has_no_pulse(member: Member) -> None:
    pulse.keep(member.pk, [said(0)])
    Member.objects.filter(pk=member.pk).update(state=MemberState.ENDED)
    assert pulse.of_task(member.allocation.task_id) == []


def test_anything_that_a_training_may_have_written_is_borne(member: Member) -> None:
    strange: list[Any] = [
        None, 3, {}, {"rank": -1}, {"rank": "x"}, {"rank": True},
        said(0, step=float(2**60), calls="many", beat_seconds=-1, gpu=900, doing=["a"], state=None, cpu=None),
        said(1, step=None, doing="x" * 500),
    ]  # fmt: skip
    pulse.keep(member.pk, strange)
    first, second = pulse.of_task(member.allocation.task_id)
    assert (first.step, first.step_age_seconds, first.gpu, first.doing) == (None, None, 100, "")
    assert len(second.doing) == pulse.WORD_CHARACTERS
