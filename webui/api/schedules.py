"""Schedules: experiments and commands that are submitted again at set times."""

from __future__ import annotations

from typing import Any

from rest_framework import serializers
from rest_framework.request import Request

from accounts.rights import Right
from dispatch import schedules
from jobs.models import Job
from shown import schedules as shown
from submissions.models import Schedule
from webui.api import encoding
from webui.api.answers import Answer, Maybe, Pagination, Time
from webui.api.errors import existing
from webui.api.permissions import actor, person, require_owner
from webui.api.views import ApiView


class ScheduledRunRecord(Answer):
    """`outcome`: Submitted, Skipped, Refused or Missed; `sentence` says why nothing was submitted."""

    due_at: Time
    outcome: str
    job: str = ""
    address: str = ""
    sentence: str = ""


class ScheduleRecord(Answer):
    """`source`: what it repeats, such as `exp 12`. `pausedWhy`: why the server paused it."""

    name: str
    kind: str
    source: str
    cron: str
    timezone: str
    overlap: str
    username: str
    paused: bool
    paused_why: str = ""
    next_at: Maybe[Time] = None
    last: Maybe[ScheduledRunRecord] = None


class SchedulesAnswer(Answer):
    schedules: list[ScheduleRecord]
    pagination: Pagination


class ScheduleAnswer(Answer):
    schedule: ScheduleRecord


class ScheduleWithRuns(ScheduleAnswer):
    coming: list[Time]
    runs: list[ScheduledRunRecord]


class RunNowAnswer(Answer):
    job_id: str
    entity_id: str
    type: str


class NewSchedule(serializers.Serializer[Any]):
    """What is repeated is named by `experimentId` or `commandId` (of an array: its ID)."""

    name = serializers.CharField()
    experimentId = serializers.IntegerField(required=False, allow_null=True)
    commandId = serializers.CharField(required=False, allow_null=True)
    cron = serializers.CharField(help_text="five fields, such as 0 3 * * 1-5")
    timezone = serializers.CharField(required=False, default="UTC")
    overlap = serializers.CharField(required=False, default="skip", help_text="skip or allow")


def _find(name: str) -> Schedule:
    return existing(shown.everyone(), "schedule", name=name)


def _run(row: shown.RunRow) -> ScheduledRunRecord:
    return ScheduledRunRecord(
        due_at=row.due, outcome=row.outcome, job=row.label, address=row.href, sentence=row.sentence
    )


def _record(schedule: Schedule, last: shown.RunRow | None) -> ScheduleRecord:
    return ScheduleRecord.of(
        schedule,
        username=schedule.owner.username,
        next_at=None if schedule.paused else schedule.next_at,
        last=_run(last) if last else None,
    )


def _whole(schedule: Schedule) -> ScheduleWithRuns:
    runs = shown.past(schedule)
    return ScheduleWithRuns(
        schedule=_record(schedule, runs[0] if runs else None),
        coming=shown.coming(schedule),
        runs=[*map(_run, runs)],
    )


class Schedules(ApiView):
    """List schedules by name, or create one that repeats an experiment or a command."""

    rights = {"GET": Right.READ, "POST": Right.EDIT}
    bodies = {"POST": NewSchedule}
    queries = {"GET": encoding.PageQuery}

    def get(self, request: Request) -> SchedulesAnswer:
        query = self.query(request)
        query["limit"] = query["limit"] or -1  # as before there were pages
        rows, pagination = encoding.cut(shown.everyone(), query)
        last = shown.last_of(rows)
        found = [_record(each, last.get(each.pk)) for each in rows]
        return SchedulesAnswer(schedules=found, pagination=pagination)

    def post(self, request: Request) -> ScheduleWithRuns:
        body = self.body(request)
        source = schedules.source_of(experiment_id=body.get("experimentId"), command_id=body.get("commandId"))
        made = schedules.create(
            body["name"], source, owner=person(request), expression=body["cron"], zone=body["timezone"],
            overlap=body["overlap"], actor=actor(request),
        )  # fmt: skip
        return _whole(made)


class OneSchedule(ApiView):
    """One schedule with its next and its past times. Deleting it leaves the jobs that it has submitted."""

    rights = {"GET": Right.READ, "DELETE": Right.EDIT}

    def get(self, request: Request, name: str) -> ScheduleWithRuns:
        return _whole(_find(name))

    def delete(self, request: Request, name: str) -> None:
        schedule = _find(name)
        require_owner(person(request), schedule)
        schedules.delete(schedule, actor=actor(request))


class SchedulePause(ApiView):
    """Pause a schedule: nothing is submitted until it is resumed, and what was due meanwhile is not run later."""

    rights = {"POST": Right.EDIT}
    paused = True

    def post(self, request: Request, name: str) -> ScheduleWithRuns:
        schedule = _find(name)
        require_owner(person(request), schedule)
        schedules.set_paused(schedule, self.paused, actor=actor(request))
        return _whole(_find(name))


class ScheduleResume(SchedulePause):
    """Resume a schedule: its next time is the first one from now on."""

    paused = False


class ScheduleRun(ApiView):
    """Submit what a schedule repeats now, in addition to its schedule and as its owner."""

    rights = {"POST": Right.EDIT}

    def post(self, request: Request, name: str) -> RunNowAnswer:
        schedule = _find(name)
        require_owner(person(request), schedule)
        job: Job = schedules.run_now(schedule, actor=actor(request))
        return RunNowAnswer(job_id=str(job.pk), entity_id=job.entity_id, type=job.kind.lower())
