"""What is asked of experiments, one or many at once: pause, activate, cancel, kill, archive, delete, move."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Annotated, Any, ClassVar

from pydantic import Field
from rest_framework import serializers
from rest_framework.request import Request

from accounts.models import User
from accounts.refusals import Code, Refusal
from accounts.rights import Right
from experiments import continuing, edits
from experiments.actions import ACTIONS
from experiments.models import Experiment, Project
from shown.experiments import with_numbers
from shown.launch_warnings import warnings_for
from submissions.config.reading import read_yaml
from webui.api import encoding
from webui.api.answers import Answer
from webui.api.errors import Missing, existing
from webui.api.experiment_encoding import ExperimentRecord, encode_experiment
from webui.api.experiment_filters import Filters, filters_of
from webui.api.experiments import find
from webui.api.permissions import actor, person, require_owner
from webui.api.views import ApiView, Json

Step = Callable[[int], object]


def act(user: User, experiment_id: int, step: Step) -> None:
    """Take the step with one experiment of the user's. Raises Refusal."""
    experiment = existing(Experiment.objects.select_related("owner"), "experiment", pk=experiment_id)
    require_owner(user, experiment)
    step(experiment_id)


def _step(name: str, who: str) -> Step:
    return partial(ACTIONS[name].run, actor=who)


class ExperimentAction(ApiView):
    """Apply an action to an experiment. Canceling or killing an ended one has no effect."""

    rights = {"POST": Right.EDIT}
    action: ClassVar[str] = ""

    def post(self, request: Request, experiment_id: int) -> None:
        try:
            act(person(request), experiment_id, _step(self.action, actor(request)))
        except Refusal as refusal:
            if self.action == "activate" and refusal.code is Code.ENDED:
                raise Missing(str(refusal)) from refusal  # Determined answers so
            raise


class ContinueBody(serializers.Serializer[Any]):
    id = serializers.IntegerField()
    overrideConfig = serializers.CharField(
        required=False, allow_blank=True, allow_null=True, trim_whitespace=False
    )


class ContinuedExperiment(Answer):
    experiment: ExperimentRecord
    warnings: list[str]
    notices: Annotated[list[str], Field(description="a sentence for each trial that starts from step 0")]


class ExperimentContinue(ApiView):
    """Continue an ended experiment from the latest checkpoints of its trials, optionally with config changes."""

    rights = {"POST": Right.EDIT}
    bodies = {"POST": ContinueBody}

    def post(self, request: Request) -> ContinuedExperiment:
        body, user = self.body(request), person(request)
        require_owner(user, find(body["id"]))
        changes = body.get("overrideConfig") or ""
        values = read_yaml(changes, "change of the config") if changes.strip() else {}
        done = continuing.go_on(body["id"], values, actor=actor(request), role=user.acting_role)
        notices = [f"Trial {pk} has no checkpoint and starts again from step 0." for pk in done.anew]
        experiment = find(body["id"])
        warnings, more = warnings_for(experiment.job.pool, experiment.job.tasks.first())
        return ContinuedExperiment(
            experiment=encode_experiment(experiment, full=True), warnings=warnings, notices=[*notices, *more]
        )


class MoveBody(serializers.Serializer[Any]):
    destinationProjectId = serializers.IntegerField()
    experimentId = serializers.IntegerField(required=False)


def _destination(project_id: int) -> Project:
    return existing(Project.objects.select_related("workspace"), "project", pk=project_id)


class ExperimentMove(ApiView):
    """Move an experiment to another project."""

    rights = {"POST": Right.EDIT}
    bodies = {"POST": MoveBody}

    def post(self, request: Request, experiment_id: int) -> None:
        project = _destination(self.body(request)["destinationProjectId"])
        who = actor(request)
        act(person(request), experiment_id, lambda pk: edits.move(pk, project, actor=who))


class BulkBody(serializers.Serializer[Any]):
    """The experiments: by id, or all in the project that match the filters."""

    experimentIds = encoding.list_of(serializers.IntegerField(), allow_null=True)
    filters = Filters(required=False, allow_null=True)
    destinationProjectId = serializers.IntegerField(required=False)


class BulkResult(Answer):
    id: int
    error: Annotated[str, Field(description="why the action failed; empty if it succeeded")]


class BulkAnswer(Answer):
    results: list[BulkResult]


class BulkAction(ApiView):
    """Apply an action to many experiments; the answer says why it failed for each."""

    rights = {"POST": Right.EDIT}
    action: ClassVar[str] = ""
    bodies = {"POST": BulkBody, "DELETE": BulkBody}

    def post(self, request: Request, project_id: int) -> BulkAnswer:
        body, user = self.body(request), person(request)
        step = self._step(body, actor(request))
        return BulkAnswer(results=[_result(user, pk, step) for pk in _meant(body, project_id)])

    def _step(self, body: Json, who: str) -> Step:
        if self.action != "move":
            return _step(self.action, who)
        if "destinationProjectId" not in body:
            raise serializers.ValidationError({"destinationProjectId": "This field is required."})
        project = _destination(body["destinationProjectId"])
        return lambda pk: edits.move(pk, project, actor=who)


class BulkDelete(BulkAction):
    """Delete many ended experiments."""

    rights = {"DELETE": Right.EDIT}
    action = "delete"
    http_method_names = ["delete", "options"]

    def delete(self, request: Request, project_id: int) -> BulkAnswer:
        return self.post(request, project_id)


def _meant(body: Json, project_id: int) -> list[int]:
    """The ids, or what the filters find in the project (0 and -1: everywhere)."""
    if ids := body.get("experimentIds"):
        return list(dict.fromkeys(ids))
    if not body.get("filters"):
        return []
    rows = filters_of(body["filters"]).of(with_numbers())
    if project_id > 0:
        rows = rows.filter(project_id=project_id)
    return list(rows.order_by("pk").values_list("pk", flat=True))


def _result(user: User, experiment_id: int, step: Step) -> BulkResult:
    try:
        act(user, experiment_id, step)
    except Refusal as refusal:
        return BulkResult(id=experiment_id, error=str(refusal))
    return BulkResult(id=experiment_id, error="")
