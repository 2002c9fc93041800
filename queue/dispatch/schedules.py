"""Schedules: an experiment or a command that is submitted again at the times of a cron expression, as its owner.

A due schedule is locked, and each of its times is a row: whoever looks second finds it done.
"""

from __future__ import annotations

import logging
import re
from collections import deque
from collections.abc import Iterator
from datetime import UTC, datetime
from itertools import islice

from django.conf import settings
from django.db import IntegrityError, InterfaceError, OperationalError, transaction
from django.db.models import Q
from django.utils import timezone

from accounts import rights
from accounts.models import User
from accounts.refusals import Code, Refusal
from commands import config as command_config
from commands import submit as command_submit
from commands.models import Command
from dispatch.going_on import going_on
from events.announce import announce
from events.models import Event
from events.record import record
from experiments import config as experiment_config
from experiments import places
from experiments import submit as experiment_submit
from experiments.models import Experiment, Project, Workspace
from jobs.labels import label_of
from jobs.models import Job
from jobs.states import JobState
from submissions import cron
from submissions.models import Schedule, ScheduledRun

log = logging.getLogger(__name__)
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_NAMES = "1 to 64 letters, digits, '.', '_' and '-', starting with a letter or digit"
#: missed times that are told one by one
MOST_MISSED = 20
#: kept for people
MOST_RUNS = 200
Outcome = ScheduledRun.Outcome


def source_of(*, experiment_id: int | None = None, command_id: str | None = None) -> Experiment | Command:
    """What a schedule repeats. Raises Refusal."""
    if (experiment_id is None) == (not command_id):
        raise Refusal("Name what to repeat: either an experiment or a command.", field="source")
    if experiment_id is not None:
        experiment = Experiment.objects.select_related("owner", "job").filter(pk=experiment_id).first()
        if experiment is None:
            raise Refusal(f"There is no experiment {experiment_id}.", Code.NOT_FOUND, field="source")
        if experiment.unmanaged:
            raise Refusal(experiment_submit.unmanaged_parent(experiment), field="source")
        return experiment
    kinds = [Job.Kind.COMMAND, Job.Kind.ARRAY]
    rows = Command.objects.select_related("owner", "job").filter(job__kind__in=kinds)
    text = str(command_id).strip().lower()
    found = list(rows.filter(task__id__startswith=text)[:2]) if text else []
    found = found or list(rows.filter(job__entity_id__startswith=text).order_by("array_index")[:1])
    if len(found) != 1:
        several = " alone" if found else ""
        raise Refusal(f"There is no command {command_id}{several}.", Code.NOT_FOUND, field="source")
    return found[0]


@transaction.atomic
def create(
    name: str,
    source: Experiment | Command,
    *,
    owner: User,
    expression: str,
    zone: str,
    overlap: str,
    actor: str,
) -> Schedule:
    """A schedule of a copy of the source's config and code. Raises Refusal."""
    rights.require_owner(owner, source)
    if not _NAME.fullmatch(name):
        raise Refusal(f"name: found {name!r}, allowed: {_NAMES}.", field="name")
    if overlap not in Schedule.Overlap.values:
        raise Refusal(
            f"overlap: found {overlap!r}, allowed: {', '.join(Schedule.Overlap.values)}.", field="overlap"
        )
    times = cron.parse(expression, zone)
    _refuse_too_many(owner)
    if isinstance(source, Experiment):
        kind, place = Schedule.Kind.EXPERIMENT, source.project_id
        config = {"text": source.original_config, "template": source.template_config}
    else:
        kind, place, config = (
            Schedule.Kind.COMMAND,
            source.workspace_number,
            {**source.config, "depends_on": []},
        )
    try:
        with transaction.atomic():
            schedule = Schedule.objects.create(
                name=name,
                kind=kind,
                config=config,
                context_id=source.context_id,
                owner=owner,
                place_number=place,
                source=label_of(source.job.kind, source.job.entity_id),
                cron=" ".join(expression.split()),
                timezone=zone,
                overlap=overlap,
                next_at=_next(times, timezone.now()),
            )
    except IntegrityError:
        raise Refusal(f"A schedule named {name} exists already.", Code.CONFLICT, field="name") from None
    _record(schedule, "created", actor)
    return schedule


def _refuse_too_many(owner: User) -> None:
    """Raises Refusal. Until the transaction ends, the owner creates no other."""
    User.objects.select_for_update(no_key=True).get(pk=owner.pk)
    has = Schedule.objects.filter(owner=owner).count()
    if has >= settings.SCHEDULES_PER_USER:
        raise Refusal(
            f"{owner.username} has {has:,} schedules; allowed: at most {settings.SCHEDULES_PER_USER:,}. "
            "Delete one first.",
            Code.CONFLICT,
        )


def _next(times: cron.Cron, after: datetime) -> datetime:
    found = times.next_after(after)
    assert found is not None  # else it was refused
    return found


def coming(schedule: Schedule, count: int) -> list[datetime]:
    """The next times."""
    times = cron.parse(schedule.cron, schedule.timezone)
    return list(islice(times.after(timezone.now()), count))


@transaction.atomic
def set_paused(schedule: Schedule, paused: bool, *, actor: str) -> None:
    """Paused, nothing is submitted; what was due then is not run later."""
    values = {"paused": paused, "paused_why": ""}
    if not paused:
        values["next_at"] = _next(cron.parse(schedule.cron, schedule.timezone), timezone.now())
    if Schedule.objects.filter(pk=schedule.pk, paused=not paused).update(**values):
        _record(schedule, "paused" if paused else "resumed", actor)


@transaction.atomic
def delete(schedule: Schedule, *, actor: str) -> None:
    """Jobs that it has submitted stay."""
    if Schedule.objects.filter(pk=schedule.pk).delete()[0]:
        _record(schedule, "deleted", actor)


@transaction.atomic
def run_now(schedule: Schedule, *, actor: str) -> Job:
    """Submit it now, in addition to its schedule. Raises Refusal."""
    locked = Schedule.objects.select_for_update(no_key=True).filter(pk=schedule.pk).first()
    if locked is None:
        raise Refusal(f"Schedule {schedule.name} was deleted.", Code.NOT_FOUND)
    now = timezone.now()
    job = _submitted(locked, now, actor)
    ScheduledRun.objects.create(schedule=locked, due_at=now, outcome=Outcome.SUBMITTED, job=job)
    _record(locked, "run", actor)
    return job


def _record(schedule: Schedule, reason: str, actor: str) -> None:
    record(Event.Kind.SCHEDULE, schedule.pk, reason=reason, actor=actor, detail={"name": schedule.name})
    announce("schedules")


# --- what is due --------------------------------------------------------------------------------------


def submit_due(now: datetime) -> None:
    """Submit every schedule whose time has come. One that fails delays no other."""
    for pk in list(Schedule.objects.filter(paused=False, next_at__lte=now).values_list("pk", flat=True)):
        with going_on(f"schedule {pk}"):
            _look(pk, now)


@transaction.atomic
def _look(pk: int, now: datetime) -> None:
    """Submit the newest of its times that have come, and note the others as missed."""
    rows = Schedule.objects.select_related("owner").select_for_update(
        of=("self",), no_key=True, skip_locked=True
    )
    schedule = rows.filter(pk=pk, paused=False, next_at__lte=now).first()
    if schedule is None:
        return
    try:
        times = cron.parse(schedule.cron, schedule.timezone)
    except Refusal as refusal:  # a zone that the system has no longer
        _pause(schedule, str(refusal))
        return
    due = deque([schedule.next_at], maxlen=MOST_MISSED + 1)
    due.extend(_until(times, schedule.next_at, now))
    newest = due.pop()
    told = [
        ScheduledRun(
            schedule=schedule,
            due_at=at,
            outcome=Outcome.MISSED,
            sentence="Not submitted in time; only the latest missed time is run.",
        )
        for at in due
    ]
    ScheduledRun.objects.bulk_create([*told, _run(schedule, newest)], ignore_conflicts=True)
    Schedule.objects.filter(pk=pk).update(next_at=_next(times, now))
    _prune(schedule)
    announce("schedules")


def _prune(schedule: Schedule) -> None:
    """Those whose job has not ended stay: a time may have to be skipped for it."""
    past = schedule.runs.filter(Q(job=None) | Q(job__state=JobState.ENDED))
    old = past.order_by("-due_at").values_list("pk", flat=True)[MOST_RUNS:]
    schedule.runs.filter(pk__in=list(old)).delete()


def _pause(schedule: Schedule, why: str) -> None:
    Schedule.objects.filter(pk=schedule.pk).update(paused=True, paused_why=why)
    _record(schedule, "paused", "server")


def _until(times: cron.Cron, first: datetime, now: datetime) -> Iterator[datetime]:
    for at in times.after(first):
        if at > now:
            return
        yield at


def _run(schedule: Schedule, due_at: datetime) -> ScheduledRun:
    """What becomes of this time."""
    run = ScheduledRun(schedule=schedule, due_at=due_at)
    owner = schedule.owner
    if not owner.is_active:
        run.outcome, run.sentence = (
            Outcome.REFUSED,
            f"{owner.username} is deactivated, so this schedule is paused.",
        )
        _pause(schedule, run.sentence)
        return run
    if schedule.overlap == Schedule.Overlap.SKIP and (last := _still_there(schedule)):
        run.outcome, run.sentence = Outcome.SKIPPED, f"{last} had not ended."
        return run
    try:
        with transaction.atomic():
            run.job = _submitted(schedule, due_at, f"user:{owner.username}")
        run.outcome = Outcome.SUBMITTED
    except Refusal as refusal:
        run.outcome, run.sentence = Outcome.REFUSED, str(refusal)
    except (OperationalError, InterfaceError):  # the database's: tried again at the next look
        raise
    except Exception:
        log.exception("schedule %s could not be submitted.", schedule.name)
        run.outcome, run.sentence = Outcome.REFUSED, "Internal error; see the server's log."
    return run


def _still_there(schedule: Schedule) -> str:
    """The newest of what it submitted that has not ended; empty if all has."""
    submitted = schedule.runs.filter(job__isnull=False).exclude(job__state=JobState.ENDED)
    last = submitted.select_related("job").order_by("-due_at").first()
    return label_of(last.job.kind, last.job.entity_id) if last and last.job else ""


def _place(schedule: Schedule) -> Project | Workspace:
    """Where its jobs are put. Raises Refusal."""
    place: Project | Workspace | None
    if schedule.kind == Schedule.Kind.COMMAND:
        word, place = "Workspace", Workspace.objects.filter(pk=schedule.place_number).first()
    else:
        word, place = "Project", Project.objects.filter(pk=schedule.place_number).first()
    if place is None:
        raise Refusal(f"{word} {schedule.place_number} was deleted.")
    places.require_open(place)
    return place


def _submitted(schedule: Schedule, due_at: datetime, actor: str) -> Job:
    """Submit it as its owner, whose rights are those of today. Raises Refusal."""
    owner = schedule.owner
    if not owner.is_active:
        raise Refusal(f"{owner.username}, who owns this schedule, is deactivated.", Code.CONFLICT)
    rights.require_editor(owner)
    place = _place(schedule)
    key = f"schedule {schedule.pk} {due_at.astimezone(UTC).isoformat()}"
    if schedule.kind == Schedule.Kind.COMMAND:
        return command_submit.create(
            owner=owner,
            config=command_config.check(schedule.config),
            context=schedule.context,
            workspace_number=schedule.place_number,
            idempotency_key=key,
            actor=actor,
        ).job
    assert isinstance(place, Project)
    text = schedule.config["text"]
    return experiment_submit.create(
        owner=owner,
        config=experiment_config.parse(text, template=schedule.config["template"] or None),
        original=text,
        context=schedule.context,
        project=place,
        parent=None,
        activate=True,
        idempotency_key=key,
        actor=actor,
    ).job
