"""Arrays of commands: read one, kill all of it, run elements of it again."""

from __future__ import annotations

from typing import Any

from rest_framework import serializers
from rest_framework.request import Request

from accounts.rights import Right
from commands import submit, transitions
from commands.models import Command
from jobs.models import Job
from shown import arrays, tasks
from webui.api.answers import Answer, Maybe, Time
from webui.api.command_kinds import ArrayRecord, CommandRecord, OfKind
from webui.api.errors import Missing
from webui.api.permissions import actor, idempotency_key, person, require_owner
from webui.api.views import ApiView, Json


class ArrayState(ArrayRecord):
    """An array with what all its elements share. `indices`, `atOnce`: as they were submitted."""

    indices: str
    username: str
    resource_pool: str
    priority: int
    start_time: Time
    end_time: Maybe[Time] = None


class ArrayAnswer(Answer):
    array: ArrayState


class RerunAnswer(Answer):
    """`command` is the first element of the new array."""

    array: ArrayState
    command: CommandRecord


class Rerun(serializers.Serializer[Any]):
    """`indices`: as in `array` of a config, such as `3,7`; left out, the elements that failed or were canceled."""

    indices = serializers.CharField(required=False, allow_null=True, allow_blank=True)


def _found(array_id: str) -> Job:
    job = arrays.find(array_id)
    if job is None:
        raise Missing(f"array {array_id} not found")
    return job


def _encoded(job: Job) -> ArrayState:
    counts = arrays.counts_of(job.pk)
    config = Command.objects.filter(job=job).values_list("config", flat=True)[0]
    return ArrayState.of(
        ArrayRecord.of_job(job, counts),
        indices=config["array"],
        username=job.owner.username,
        resource_pool=job.pool.name,
        priority=job.priority,
        start_time=job.submitted_at,
        end_time=job.ended_at,
    )


class OneArray(ApiView):
    """One array with the numbers of its elements that wait, run and have ended."""

    rights = {"GET": Right.READ}
    answers = {"GET": ArrayAnswer}

    def get(self, request: Request, array_id: str) -> ArrayAnswer:
        return ArrayAnswer(array=_encoded(_found(array_id)))


class ArrayKill(ApiView):
    """Kill all elements of an array immediately. Those that have ended are left unchanged."""

    rights = {"POST": Right.EDIT}
    answers = {"POST": ArrayAnswer}

    def post(self, request: Request, array_id: str) -> ArrayAnswer:
        job = _found(array_id)
        require_owner(person(request), job)
        transitions.kill_array(job.pk, actor=actor(request))
        return ArrayAnswer(array=_encoded(_found(str(job.pk))))


class ArrayRerun(OfKind, ApiView):
    """Submit elements of an array again, as an array of their own with the same code, config and indices."""

    rights = {"POST": Right.EDIT}
    bodies = {"POST": Rerun}
    answers = {"POST": RerunAnswer}

    def post(self, request: Request, array_id: str) -> Json:
        job, user = _found(array_id), person(request)
        require_owner(user, job)
        command = submit.rerun(
            job,
            self.body(request).get("indices") or "",
            owner=user,
            actor=actor(request),
            idempotency_key=idempotency_key(request, user),
        )
        row = tasks.row(tasks.with_parts().get(pk=command.pk))
        return {"array": _encoded(_found(str(command.job_id))), "command": self.encoded(row, request)}
