"""End whatever a task belongs to: a trial, or a command, notebook, shell or TensorBoard."""

from __future__ import annotations

from typing import Any

from rest_framework import serializers
from rest_framework.request import Request

from accounts.rights import Right
from commands import transitions as command_steps
from commands.models import Command
from experiments import outcomes
from experiments.models import Trial
from webui.api import tasks
from webui.api.errors import BadRequest
from webui.api.permissions import actor, person, require_owner
from webui.api.views import ApiView


class KillBody(serializers.Serializer[Any]):
    taskId = serializers.CharField(required=False, allow_blank=True)
    killFromRoot = serializers.BooleanField(required=False, allow_null=True)


class TaskKill(ApiView):
    """Kill a task immediately, by its id or the beginning of its id. An ended one is left unchanged."""

    rights = {"POST": Right.EDIT}
    bodies = {"POST": KillBody}

    def post(self, request: Request, task_id: str) -> None:
        task, user, who = tasks.find(task_id), person(request), actor(request)
        trial = Trial.objects.select_related("experiment__owner").filter(task=task).first()
        if trial is not None:
            require_owner(user, trial.experiment)
            outcomes.kill_trial(trial.pk, actor=who)
            return
        command = Command.objects.select_related("owner").filter(task=task).first()
        if command is None:
            raise BadRequest(f"task {task.pk} belongs to the server and ends by itself.")
        require_owner(user, command)
        command_steps.kill(command.pk, actor=who)
