"""Schedules: when they are due, what is submitted then, and what is told instead."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from django.utils import timezone
from hypothesis import given, settings
from hypothesis import strategies as st

from accounts.models import User
from accounts.refusals import Code, Refusal
from dispatch import schedules
from experiments.models import Workspace
from jobs.models import Job
from submissions import cron
from submissions.models import Schedule, ScheduledRun
from tests.commands.test_outcomes import exited, make_command, started
from tests.rig.world import make_host, make_user, submit_experiment

db = pytest.mark.django_db
NOON = datetime(2026, 3, 28, 12, tzinfo=UTC)


def times(expression: str, zone: str, after: datetime, count: int) -> list[str]:
    found = cron.parse(expression, zone).after(after)
    return [f"{next(found):%m-%d %H:%M}" for _ in range(count)]


@pytest.mark.parametrize(
    ("expression", "zone", "after", "expected"),
    [
        ("0 3 * * 1-5", "UTC", NOON, ["03-30 03:00", "03-31 03:00", "04-01 03:00"]),
        ("0 3 * * mon-fri", "Europe/Berlin", NOON, ["03-30 01:00", "03-31 01:00"]),
        # 02:30 does not exist on March 29, and exists twice on October 25
        ("30 2 * * *", "Europe/Berlin", NOON, ["03-29 01:30", "03-30 00:30"]),
        (
            "30 2 * * *",
            "Europe/Berlin",
            datetime(2026, 10, 24, 12, tzinfo=UTC),
            ["10-25 00:30", "10-26 01:30"],
        ),
        ("0 0 13 * 5", "UTC", NOON, ["04-03 00:00", "04-10 00:00", "04-13 00:00"]),  # either day, as in cron
        ("0 0 * * 7", "UTC", NOON, ["03-29 00:00", "04-05 00:00"]),
        ("0 0 * * 5-7", "UTC", NOON, ["03-29 00:00", "04-03 00:00", "04-04 00:00", "04-05 00:00"]),
        ("0 0 * * 0-7", "UTC", NOON, ["03-29 00:00", "03-30 00:00", "03-31 00:00"]),
        ("0 0 * * SUN-7", "UTC", NOON, ["03-29 00:00", "03-30 00:00", "03-31 00:00"]),
        ("0 0 * * 1,6-7/1", "UTC", NOON, ["03-29 00:00", "03-30 00:00", "04-04 00:00"]),
        ("0 0 29 2 *", "UTC", NOON, ["02-29 00:00"]),
        # by the clock: 02:00 is skipped on March 29, and comes twice on October 25
        (
            "0 */2 * * *",
            "Europe/Berlin",
            datetime(2026, 3, 28, 22, tzinfo=UTC),
            ["03-28 23:00", "03-29 02:00"],
        ),
        ("30 * * * *", "Europe/Berlin", datetime(2026, 3, 29, 0, tzinfo=UTC), ["03-29 00:30", "03-29 01:30"]),
        (
            "30 * * * *",
            "Europe/Berlin",
            datetime(2026, 10, 24, 23, 45, tzinfo=UTC),
            ["10-25 00:30", "10-25 01:30", "10-25 02:30"],
        ),
    ],
)
def test_times_in_a_zone(expression: str, zone: str, after: datetime, expected: list[str]) -> None:
    assert times(expression, zone, after, len(expected)) == expected


@settings(max_examples=30, deadline=None)
@given(
    st.datetimes(datetime(2026, 1, 1), datetime(2027, 1, 1)),
    st.sampled_from(["*/20 1-3 * * *", "30 2 * * *"]),
)
def test_times_rise_and_every_day_has_as_many(moment: datetime, expression: str) -> None:
    found = cron.parse(expression, "Europe/Berlin").after(moment.replace(tzinfo=UTC))
    several = [next(found) for _ in range(20)]
    assert several == sorted(set(several))
    assert len({(at.date()) for at in several}) >= (2 if expression[0] == "*" else 20)


@pytest.mark.parametrize("text", ["61 * * * *", "a b c d e", "0 0 31 2 *", "* *", "*/0 * * * *", ""])
def test_an_expression_that_is_none_is_refused_with_a_sentence(text: str) -> None:
    with pytest.raises(Refusal, match=r"cron: found .*, allowed: five fields") as refused:
        cron.parse(text, "UTC")
    assert refused.value.field == "cron"


def test_an_unknown_zone_is_refused_with_a_sentence() -> None:
    with pytest.raises(
        Refusal, match="timezone: found 'Mars', allowed: a time zone such as UTC or Europe/Berlin"
    ):
        cron.parse("0 3 * * *", "Mars")


def make_schedule(overlap: str = "skip", source: object = None) -> Schedule:
    return schedules.create(
        "nightly", source or make_command(), owner=make_user(), expression="0 * * * *", zone="UTC",  # type: ignore[arg-type]
        overlap=overlap, actor="user:ada",
    )  # fmt: skip


def look(at: datetime) -> list[tuple[str, str]]:
    """What became of its times, the newest first."""
    schedules.submit_due(at)
    schedules.submit_due(at)  # another worker finds it done
    return list(ScheduledRun.objects.values_list("outcome", "sentence"))


@db
def test_a_command_and_an_experiment_are_submitted_as_their_owner_with_the_same_code() -> None:
    command = make_command("echo", slots=0)
    schedule = make_schedule(source=command)
    assert schedule.source == f"cmd {command.short_id}"
    assert look(schedule.next_at) == [("submitted", "")]
    job = Job.objects.exclude(pk=command.job_id).get()
    again = job.commands.get()
    assert (again.owner, again.context_id, again.config["entrypoint"]) == (
        command.owner,
        command.context_id,
        "echo",
    )
    experiment = submit_experiment()
    Schedule.objects.all().delete()
    schedule = make_schedule(source=experiment)
    made = schedules.run_now(schedule, actor="user:ada")
    assert (made.kind, made.owner, made.name) == ("EXPERIMENT", experiment.owner, experiment.name)


@db
def test_one_that_is_still_there_is_not_overtaken_unless_allowed() -> None:
    make_host("gpu1", 2)
    schedule = make_schedule()
    first = schedule.next_at
    look(first)
    job = ScheduledRun.objects.get().job
    assert job is not None
    label = f"cmd {job.entity_id[:8]}"
    assert look(first + timedelta(hours=1))[0] == ("skipped", f"{label} had not ended.")
    exited(started(job.commands.get()), 0)
    assert look(first + timedelta(hours=2))[0] == ("submitted", "")
    Schedule.objects.update(overlap="allow")
    assert look(first + timedelta(hours=3))[0] == ("submitted", "")


@db
def test_an_older_one_that_is_still_there_counts_and_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(schedules, "MOST_RUNS", 1)
    make_host("gpu1", 4)
    schedule = make_schedule()
    first = schedule.next_at
    look(first)
    old = ScheduledRun.objects.get().job
    newest = schedules.run_now(schedule, actor="user:ada")
    ScheduledRun.objects.filter(job=newest).update(due_at=first + timedelta(minutes=1))
    exited(started(newest.commands.get()), 0)
    assert old is not None
    label = f"cmd {old.entity_id[:8]}"
    for hours in (1, 2, 3):
        assert look(first + timedelta(hours=hours))[0] == ("skipped", f"{label} had not ended.")
    assert [run.job for run in ScheduledRun.objects.order_by("-due_at")] == [None, old]


@db
def test_what_breaks_is_told_and_not_tried_again() -> None:
    schedule = make_schedule(source=submit_experiment())
    Schedule.objects.update(config={})
    assert look(schedule.next_at) == [("refused", "Internal error; see the server's log.")]
    due = schedule.next_at
    schedule.refresh_from_db()
    assert schedule.next_at == due + timedelta(hours=1)
    Schedule.objects.update(timezone="Mars")
    assert len(look(schedule.next_at)) == 1
    schedule.refresh_from_db()
    assert schedule.paused and schedule.paused_why.startswith("timezone: found 'Mars'")


@db
def test_who_runs_one_now_is_refused_if_it_or_its_owner_has_gone() -> None:
    schedule = make_schedule()
    Workspace.objects.update(archived=True)
    with pytest.raises(Refusal, match="is archived; nothing can be added to it until it is unarchived"):
        schedules.run_now(schedule, actor="user:ada")
    assert look(schedule.next_at)[0][0] == "refused"
    Workspace.objects.update(archived=False)
    User.objects.filter(pk=schedule.owner_id).update(is_active=False)
    with pytest.raises(Refusal, match="ada, who owns this schedule, is deactivated"):
        schedules.run_now(schedule, actor="user:bob")
    Schedule.objects.all().delete()
    with pytest.raises(Refusal, match="Schedule nightly was deleted") as refused:
        schedules.run_now(schedule, actor="user:bob")
    assert refused.value.code == Code.NOT_FOUND


@db
def test_of_the_times_that_an_outage_has_missed_one_is_caught_up() -> None:
    schedule = make_schedule()
    after = schedule.next_at + timedelta(hours=3, minutes=5)
    missed = ("missed", "Not submitted in time; only the latest missed time is run.")
    assert look(after) == [("submitted", ""), missed, missed, missed]
    schedule.refresh_from_db()
    assert schedule.next_at == after.replace(minute=0, second=0, microsecond=0) + timedelta(hours=1)


@db
def test_what_is_refused_is_told_and_the_schedule_of_a_deactivated_owner_pauses() -> None:
    schedule = make_schedule()
    User.objects.filter(pk=schedule.owner_id).update(role=User.Role.VIEWER)
    assert look(schedule.next_at)[0] == ("refused", "ada is a viewer and cannot change anything.")
    User.objects.filter(pk=schedule.owner_id).update(is_active=False)
    sentence = "ada is deactivated, so this schedule is paused."
    assert look(schedule.next_at + timedelta(hours=1))[0] == ("refused", sentence)
    schedule.refresh_from_db()
    assert (schedule.paused, schedule.paused_why) == (True, sentence)


@db
def test_a_paused_one_makes_up_for_nothing() -> None:
    schedule = make_schedule()
    schedules.set_paused(schedule, True, actor="user:ada")
    assert look(schedule.next_at) == []
    Schedule.objects.update(next_at=timezone.now() - timedelta(days=2))
    schedules.set_paused(schedule, False, actor="user:ada")
    assert look(timezone.now()) == []
    schedules.delete(schedule, actor="user:ada")
    assert not Schedule.objects.exists()


@db
def test_what_it_repeats_and_its_name_are_checked() -> None:
    with pytest.raises(Refusal, match="Name what to repeat: either an experiment or a command"):
        schedules.source_of()
    with pytest.raises(Refusal, match="There is no experiment 404"):
        schedules.source_of(experiment_id=404)
    command = make_command()
    assert schedules.source_of(command_id=command.short_id) == command
    make_schedule(source=command)
    with pytest.raises(Refusal, match="A schedule named nightly exists already"):
        make_schedule(source=command)
