"""Schedules as they are shown: their next times, and what became of the past ones."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from zoneinfo import ZoneInfo

from django.db.models import QuerySet

from dispatch import schedules
from jobs.labels import label_of
from jobs.models import Job
from submissions.models import Schedule, ScheduledRun

#: next times, and past ones, on the page of a schedule
COMING, PAST = 5, 50
_OUTCOMES = {
    ScheduledRun.Outcome.SUBMITTED: "Submitted",
    ScheduledRun.Outcome.SKIPPED: "Skipped",
    ScheduledRun.Outcome.REFUSED: "Refused",
    ScheduledRun.Outcome.MISSED: "Missed",
}


@dataclass(frozen=True)
class RunRow:
    """One time of a schedule: when it was due in its zone, and the job, or why there is none."""

    due: datetime
    outcome: str
    label: str
    href: str
    sentence: str


def everyone() -> QuerySet[Schedule]:
    return Schedule.objects.select_related("owner")


def run_row(run: ScheduledRun) -> RunRow:
    job = run.job
    room = "experiments" if job and job.kind == Job.Kind.EXPERIMENT else "commands"
    return RunRow(
        run.due_at.astimezone(ZoneInfo(run.schedule.timezone)),
        _OUTCOMES[ScheduledRun.Outcome(run.outcome)],
        label_of(job.kind, job.entity_id) if job else "",
        f"/{room}/{job.entity_id}" if job else "",
        run.sentence,
    )


def past(schedule: Schedule, count: int = PAST) -> list[RunRow]:
    """The newest of its times that have passed."""
    return [run_row(run) for run in schedule.runs.select_related("job", "schedule")[:count]]


def last_of(rows: list[Schedule]) -> dict[int, RunRow]:
    """Schedule id -> what became of its last time."""
    runs = (
        ScheduledRun.objects.filter(schedule__in=rows)
        .order_by("schedule_id", "-due_at")
        .distinct("schedule_id")
    )
    return {run.schedule_id: run_row(run) for run in runs.select_related("job", "schedule")}


def next_of(schedule: Schedule) -> datetime | None:
    """Its next time, in its zone; None while it is paused."""
    return None if schedule.paused else schedule.next_at.astimezone(ZoneInfo(schedule.timezone))


def coming(schedule: Schedule) -> list[datetime]:
    """Its next times, in its zone; none while it is paused."""
    zone = ZoneInfo(schedule.timezone)
    return [] if schedule.paused else [at.astimezone(zone) for at in schedules.coming(schedule, COMING)]
