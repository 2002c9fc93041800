"""How long logs are kept, what they hold, and what would be removed (features.md 3.5)."""

from __future__ import annotations

from functools import reduce
from typing import Annotated, Any

from django.conf import settings
from django.utils import timezone
from pydantic import Field
from rest_framework import serializers
from rest_framework.request import Request

from accounts.rights import Right
from commands.models import Command
from dispatch.keeping import log_retention
from dispatch.keeping.log_retention import Due
from events.announce import wake
from events.models import Event
from events.record import record
from experiments import edits
from experiments.models import Experiment
from jobs.models import Task
from logs import retention
from logs.retention import DAYS_MAX, FOR_EVER, Held
from webui.api.answers import Answer, Maybe, Number64, Time, one_of
from webui.api.errors import Missing
from webui.api.experiment_actions import BulkAction, BulkAnswer, BulkBody, Step, act
from webui.api.permissions import actor, person, require_owner
from webui.api.trials import find
from webui.api.views import ApiView, Json

#: Of a dry run; its sums are of all.
LISTED_MAX = 1000


def _days(**options: Any) -> serializers.IntegerField:
    return serializers.IntegerField(min_value=FOR_EVER, max_value=DAYS_MAX, **options)


class RetainBody(serializers.Serializer[Any]):
    """Days after the end, -1 for forever; null uses the config's or the server's setting."""

    numDays = _days(allow_null=True)
    trialId = serializers.IntegerField(required=False)
    experimentId = serializers.IntegerField(required=False)


class TrialRetainLogs(ApiView):
    """Set how long to keep the log of a trial."""

    rights = {"PUT": Right.EDIT}
    bodies = {"PUT": RetainBody}

    def put(self, request: Request, trial_id: int) -> None:
        trial = find(request, trial_id)
        require_owner(person(request), trial.experiment)
        retention.keep(trial.task_id, self.body(request)["numDays"], actor=actor(request))


class RemainingDays(Answer):
    remaining_days: Annotated[int, Field(description="-1: forever")]


class TrialRemainingDays(ApiView):
    """Whole days until the log of a trial may be removed; -1: it is kept forever."""

    rights = {"GET": Right.READ | Right.RUN}

    def get(self, request: Request, trial_id: int) -> RemainingDays:
        kept = log_retention.kept(find(request, trial_id).task_id)
        return RemainingDays(remaining_days=kept.remaining_days(timezone.now()))


class TaskRetainLogs(ApiView):
    """Set how long to keep the log of any task, such as a command."""

    rights = {"PUT": Right.EDIT}
    bodies = {"PUT": RetainBody}

    def put(self, request: Request, task_id: str) -> None:
        tasks = Task.objects.select_related("trial__experiment", "command")
        task = None if "\x00" in task_id else tasks.filter(pk=task_id).first()
        if task is None:
            raise Missing(f"task {task_id!r} not found")
        owned: Experiment | Command = task.command if hasattr(task, "command") else task.trial.experiment
        require_owner(person(request), owned)
        retention.keep(task_id, self.body(request)["numDays"], actor=actor(request))


def _keep(days: int | None, who: str) -> Step:
    return lambda pk: edits.keep_logs(pk, days, actor=who)


class ExperimentRetainLogs(ApiView):
    """Set how long to keep the logs of all trials of an experiment, including future ones."""

    rights = {"PUT": Right.EDIT}
    bodies = {"PUT": RetainBody}

    def put(self, request: Request, experiment_id: int) -> None:
        act(person(request), experiment_id, _keep(self.body(request)["numDays"], actor(request)))


class BulkRetainBody(BulkBody):
    numDays = _days()
    projectId = serializers.IntegerField(required=False)


class BulkRetainLogs(BulkAction):
    """Set how long to keep the logs of many experiments."""

    rights = {"PUT": Right.EDIT}
    bodies = {"PUT": BulkRetainBody}
    http_method_names = ["put", "options"]

    def put(self, request: Request, project_id: int) -> BulkAnswer:
        return self.post(request, project_id)

    def _step(self, body: Json, who: str) -> Step:
        return _keep(body["numDays"], who)


class DryRunQuery(serializers.Serializer[Any]):
    """`defaultDays`: use this instead of the server's setting."""

    defaultDays = _days(required=False)


class HeldLogs(Answer):
    lines: Number64
    text_bytes: Number64
    stored_bytes: Annotated[Number64, Field(description="compressed size")]


class SumOfLogs(HeldLogs):
    logs: int


class DueLog(HeldLogs):
    """A log that the next cleanup would remove."""

    task_id: str
    trial_id: Maybe[int] = None
    experiment_id: Maybe[int] = None
    end_time: Time
    days: int
    policy: Annotated[str, one_of("task", "config", "server")]


class RetentionAnswer(Answer):
    default_days: int
    holds: SumOfLogs
    due: SumOfLogs
    logs: Annotated[list[DueLog], Field(description=f"the first {LISTED_MAX:,}")]


class LogRetention(ApiView):
    """The size of all logs, how long they are kept, and what the next cleanup would remove. Removes nothing."""

    rights = {"GET": Right.READ}
    queries = {"GET": DryRunQuery}

    def get(self, request: Request) -> RetentionAnswer:
        default = self.query(request).get("defaultDays", settings.LOG_RETENTION_DAYS)
        due = log_retention.due(timezone.now(), default)
        held = retention.held_by([each.task_id for each in due])
        sums = reduce(Held.plus, held.values(), Held())
        logs = [_described(each, held[each.task_id]) for each in due[:LISTED_MAX] if each.task_id in held]
        holds = SumOfLogs(logs=retention.tasks_with_logs(), **_encoded(retention.held()))
        sum_due = SumOfLogs(logs=len(due), **_encoded(sums))
        return RetentionAnswer(default_days=default, holds=holds, due=sum_due, logs=logs)


def _encoded(held: Held) -> dict[str, str]:
    """64-bit numbers are strings in the dialect."""
    return {
        "lines": str(held.lines),
        "text_bytes": str(held.text_bytes),
        "stored_bytes": str(held.stored_bytes),
    }


def _described(each: Due, held: Held) -> DueLog:
    return DueLog.of(
        each, end_time=each.kept.ended_at, days=each.kept.days, policy=each.kept.policy, **_encoded(held)
    )


class CleanupAnswer(Answer):
    removed_count: Annotated[Number64, Field(description="lines")]
    removed_logs: int
    more: Annotated[bool, Field(description="more logs are being removed in the background")]


class CleanupLogs(ApiView):
    """Remove expired logs now. Work that takes longer than a request continues in the background."""

    rights = {"POST": Right.ADMIN}

    def post(self, request: Request) -> CleanupAnswer:
        record(Event.Kind.SERVER, "logs", reason="removal_of_due_ones_asked_for", actor=actor(request))
        removed = log_retention.remove_due(settings.LOG_CLEANUP_ROUND_SECONDS)
        if removed.more:
            wake(log_retention.REMOVE)
        lines = str(removed.held.lines)
        return CleanupAnswer(removed_count=lines, removed_logs=removed.logs, more=removed.more)
