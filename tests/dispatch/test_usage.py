"""Usage of slots: exact to the second, clipped to what is asked for, and kept when its experiment is deleted."""

from datetime import UTC, datetime, timedelta

import pytest
from django.utils import timezone

from accounts.refusals import Refusal
from dispatch.keeping import deletion, usage
from dispatch.keeping.usage import Periods
from dispatch.runs import settle
from experiments.models import Experiment
from experiments.states import ExperimentState
from hosts.models import Host, Slot
from hosts.pools import default_pool
from jobs.models import Allocation, Job, Member, SlotHold, UsageRecord
from jobs.states import MemberState
from tests.rig.world import assigned, make_host, make_user, submit_experiment, trial_of

pytestmark = pytest.mark.django_db

DAY = datetime(2026, 3, 10, tzinfo=UTC)
HOUR = 3600.0


def hours(number: float) -> datetime:
    return DAY + timedelta(hours=number)


def held(
    hosts: int = 1, slots: int = 2, began: float = 1.0, name: str = "ada", **fields: object
) -> Allocation:
    """An attempt that has held `slots` on each of `hosts` hosts since `began` hours after DAY."""
    experiment = submit_experiment(slots=hosts * slots, owner=make_user(name), name=f"of-{name}")
    Experiment.objects.filter(pk=experiment.pk).update(**fields)
    rows = [make_host(f"{name}-{index}-{Host.objects.count()}", slots) for index in range(hosts)]
    placement = [(row.pk, list(Slot.objects.filter(host=row).values_list("pk", flat=True))) for row in rows]
    task = trial_of(experiment).task
    allocation = assigned(task_id=task.pk, placement=placement, on_sufferance=False, actor="test")
    Allocation.objects.filter(pk=allocation.pk).update(assigned_at=hours(began))
    return allocation


def ended(allocation: Allocation, *ends: float) -> None:
    """Its members end at these hours, the last of them the attempt with it."""
    members = list(Member.objects.filter(allocation=allocation).order_by("index"))
    for member, end in zip(members[:-1], ends[:-1], strict=True):
        over = {"state": MemberState.ENDED, "exit_reason": "completed", "ended_at": hours(end)}
        Member.objects.filter(pk=member.pk).update(**over)
        SlotHold.objects.filter(member=member).update(released_at=hours(end))
    settle.member_exited(members[-1].pk, code=0, signal=None, ended_at=None, first_failure=None)
    UsageRecord.objects.filter(pk=members[-1].run_key).update(ended_at=hours(ends[-1]))


def on(day: str, to: str = "") -> Periods:
    return usage.between("day", day, to or day, most=31)


def test_an_attempt_that_ends_leaves_what_each_of_its_members_held() -> None:
    allocation = held(hosts=2, slots=2, labels=["llm", "night"])
    ended(allocation, 2, 4)
    (total,) = usage.sums(on("2026-03-10"))
    assert total.seconds == 2 * 1 * HOUR + 2 * 3 * HOUR
    assert total.by_user == {"ada": total.seconds} and total.by_pool == {"default": total.seconds}
    assert total.by_label == {"llm": total.seconds, "night": total.seconds} and not total.unlabeled
    first, second = usage.held(hours(0), hours(24), limit=10)
    assert [first.slots, first.seconds, second.seconds] == [2, HOUR, 3 * HOUR]
    assert first.allocation_id == allocation.pk and first.workspace == "Uncategorized"


def test_time_is_cut_at_midnight_and_at_what_was_asked_for() -> None:
    ended(held(slots=1, began=-2), 30)
    days = usage.sums(on("2026-03-09", "2026-03-12"))
    assert [(day.period, day.seconds) for day in days] == [
        ("2026-03-09", 2 * HOUR), ("2026-03-10", 24 * HOUR), ("2026-03-11", 6 * HOUR), ("2026-03-12", 0.0),
    ]  # fmt: skip
    assert [day.unlabeled for day in days] == [day.seconds for day in days]
    (row,) = usage.held(hours(1), hours(2), limit=10)
    assert (row.seconds, row.started_at, row.ended_at) == (HOUR, hours(-2), hours(30))
    months = usage.sums(usage.between("month", "2026-02", "2026-03-31", most=2))
    assert [(month.period, month.seconds) for month in months] == [("2026-02", 0.0), ("2026-03", 32 * HOUR)]


def test_what_still_holds_slots_counts_up_to_now_and_once_when_it_ends() -> None:
    allocation = held(slots=2)
    began = timezone.now() - timedelta(minutes=1)
    Allocation.objects.filter(pk=allocation.pk).update(assigned_at=began)
    periods = usage.latest("day", 2, timezone.now())

    def seconds() -> float:
        return sum(day.seconds for day in usage.sums(periods))

    assert 120 <= seconds() < 150
    member = allocation.members.get()
    settle.member_exited(member.pk, code=0, signal=None, ended_at=None, first_failure=None)
    assert 120 <= seconds() < 150
    (row,) = usage.held(began, timezone.now(), limit=10)
    assert row.run_key == member.run_key and UsageRecord.objects.count() == 1


def test_history_survives_the_deletion_of_its_experiment() -> None:
    allocation = held(labels=["llm"])
    ended(allocation, 2)
    before = usage.sums(on("2026-03-10")), usage.held(hours(0), hours(24), limit=10)
    experiment = Experiment.objects.get()
    Experiment.objects.filter(pk=experiment.pk).update(state=ExperimentState.DELETING)
    assert deletion.delete(experiment.pk)
    assert not Job.objects.exists() and not Allocation.objects.exists()
    assert (usage.sums(on("2026-03-10")), usage.held(hours(0), hours(24), limit=10)) == before
    assert before[1][0].experiment_id == experiment.pk


def test_pages_of_what_was_held_follow_each_other_without_gap_or_repeat() -> None:
    for number in range(5):
        ended(held(name=f"user{number % 2}", began=number // 2), 6)
    found, last = [], None
    while page := usage.held(hours(0), hours(24), behind=last, limit=2):
        found += page
        last = page[-1]
    assert [each.run_key for each in found] == [
        each.run_key for each in usage.held(hours(0), hours(24), limit=9)
    ]
    assert len({each.run_key for each in found}) == 5 and default_pool().name == found[0].pool


def test_the_last_days_and_months_end_with_the_present_one() -> None:
    now = datetime(2026, 1, 15, 23, 59, tzinfo=UTC)
    assert usage.latest("day", 3, now).names == ["2026-01-13", "2026-01-14", "2026-01-15"]
    assert usage.latest("month", 3, now).names == ["2025-11", "2025-12", "2026-01"]


@pytest.mark.parametrize(
    ("unit", "first", "last", "sentence"),
    [
        ("day", "2026-3-x", "2026-03-10", "Found '2026-3-x', allowed: a day, such as"),
        ("month", "March", "2026-03", "Found 'March', allowed: a month, such as 2026-11."),
        ("day", "2026-03-10", "2026-03-09", "The first day, 2026-03-10, is after the last, 2026-03-09"),
        ("day", "2026-01-01", "2026-02-01", "Found 32 days, allowed: at most 31."),
    ],
)
def test_a_wrong_period_is_a_sentence(unit: usage.Unit, first: str, last: str, sentence: str) -> None:
    with pytest.raises(Refusal, match=sentence):
        usage.between(unit, first, last, most=31)
