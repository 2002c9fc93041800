"""The pulse as it is kept and read: one statement each, ages by the server's clock, silent hosts left out."""

from datetime import timedelta
from typing import Any

import pytest
from django.utils import timezone
from pytest_django import DjangoAssertNumQueries

from jobs.models import Allocation, Member
from jobs.states import AllocationState, MemberState
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


@pytest.mark.survive(37)
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


def test_the_ranks_of_a_member_that_has_ended_have_ended_and_run_nowhere(member: Member) -> None:
    pulse.keep(member.pk, [said(0), {"rank": 1, "state": "ended", "state_seconds": 30.0}])
    older(member, pulse.SILENT_SECONDS + 1)
    Member.objects.filter(pk=member.pk).update(state=MemberState.ENDED)
    found = pulse.of_task(member.allocation.task_id)
    assert [(one.state, one.active, one.mark) for one in found] == [("ended", False, None)] * 2
    assert pulse.places(member.allocation.task_id) == {}


def test_an_attempt_that_is_over_has_no_pulse(member: Member) -> None:
    pulse.keep(member.pk, [said(0)])
    Allocation.objects.filter(pk=member.allocation_id).update(state=AllocationState.TERMINATED)
    assert pulse.of_task(member.allocation.task_id) == []


def test_who_holds_a_gang_that_has_ended_otherwise_is_marked(member: Member) -> None:
    sleeps = {"rank": 2, "state": "S", "cpu": 0.0, "idle_seconds": 90.0}
    ended = [{"rank": rank, "state": "ended", "state_seconds": 60.0} for rank in (0, 1, 3)]
    pulse.keep(member.pk, [*ended, sleeps])
    found = pulse.of_task(member.allocation.task_id)
    assert [one.state for one in found] == ["ended", "ended", "S", "ended"]
    assert [one.mark is not None for one in found] == [False, False, True, False]


@pytest.mark.parametrize(("seconds", "active"), [(1.0, True), (30.0, False)])
def test_a_light_rank_that_writes_is_active(member: Member, seconds: float, active: bool) -> None:
    light = {"rank": 0, "state": "S", "cpu": 0.01, "idle_seconds": 90.0, "wrote_seconds": seconds}
    pulse.keep(member.pk, [light])
    (found,) = pulse.of_task(member.allocation.task_id)
    assert found.active is active


HOSTILE = [
    10**400,
    -(10**400),
    1e300,
    2**70,
    -5,
    "x" * 5000,
    "\u2028",
    [],
    [[]],
    {"a": {"b": []}},
    True,
    None,
]


@pytest.mark.parametrize("field", [*said(0), "gpu", "wrote_seconds", "waits_in", "made_up"])
def test_a_list_of_ranks_may_have_anything_in_its_fields(field: str, member: Member) -> None:
    """The list is one, and its ranks are objects; what is in them is not what it should be."""
    for value in HOSTILE:
        pulse.keep(member.pk, [{**said(0), field: value}, said(1), {**said(2), field: value}])
        found = pulse.of_task(member.allocation.task_id)
        assert 1 in [one.rank for one in found], "what is wrong with one rank hides no other"
        assert 1 in pulse.places(member.allocation.task_id)
        assert all(isinstance(one.step, int | None) and len(one.doing) <= 60 for one in found)
        older(member, 10_000.0)
        pulse.of_task(member.allocation.task_id)


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
