"""Checkpoints: what they hold and where they come from; reports of runs that use the published SDK."""

from __future__ import annotations

import uuid
from typing import Any

from django.db import transaction
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from dispatch import detached
from experiments import checkpoints, transitions
from experiments.config import masked
from experiments.models import Checkpoint, Trial
from jobs.models import Member
from metrics import reported
from webui.api import encoding
from webui.api.authentication import Run
from webui.api.errors import BadRequest, Forbidden, Missing
from webui.api.permissions import person, require_owner
from webui.api.trial_encoding import checkpoint_state
from webui.api.views import ApiView, Json

CHECKPOINT_SORT = {
    "SORT_BY_UUID": "uuid",
    "SORT_BY_TRIAL_ID": "trial_id",
    "SORT_BY_BATCH_NUMBER": "steps_completed",
    "SORT_BY_END_TIME": "reported_at",
    "SORT_BY_STATE": "state",
    "SORT_BY_SEARCHER_METRIC": "trial__searcher_metric",
}
_STATES = ["STATE_ACTIVE", "STATE_COMPLETED", "STATE_ERROR", "STATE_DELETED", "STATE_PARTIALLY_DELETED"]


class CheckpointsQuery(encoding.PageQuery):
    sortByAttr = serializers.ChoiceField(required=False, choices=["SORT_BY_UNSPECIFIED", *CHECKPOINT_SORT])
    sortByMetric = serializers.CharField(required=False)
    states = serializers.ListField(child=serializers.ChoiceField(choices=_STATES), required=False)


def chosen_checkpoints(rows: QuerySet[Checkpoint], query: Json) -> QuerySet[Checkpoint]:
    """The rows of a list, filtered and in order."""
    if states := query.get("states"):
        rows = rows.filter(
            state__in=["PARTIAL" if s == "STATE_ACTIVE" else s.removeprefix("STATE_") for s in states]
        )
    query = {**query, "sortBy": query.get("sortByAttr")}
    return rows.select_related("trial__experiment").order_by(
        *encoding.ordering(query, CHECKPOINT_SORT, "reported_at")
    )


def encode_checkpoint(checkpoint: Checkpoint) -> Json:
    trial = checkpoint.trial
    experiment = trial.experiment
    training: Json = {
        "trialId": trial.pk,
        "experimentId": experiment.pk,
        "experimentConfig": masked(experiment.config),
        "hparams": trial.hparams,
    }
    step = checkpoint.steps_completed
    for report in reported.read([trial.pk], ["training", "validation"], first_step=step, last_step=step):
        training[f"{report.group}Metrics"] = {"avgMetrics": report.values}
        if report.group == "validation":
            metric = report.values.get((experiment.config.get("searcher") or {}).get("metric", ""))
            if isinstance(metric, (int, float)):
                training["searcherMetric"] = metric
    return {
        "uuid": str(checkpoint.pk),
        "taskId": trial.task_id,
        "allocationId": checkpoint.allocation_id,
        "reportTime": encoding.time(checkpoint.reported_at),
        "state": checkpoint_state(checkpoint),
        "resources": {path: str(size) for path, size in checkpoint.resources.items()},
        "metadata": {"steps_completed": checkpoint.steps_completed, **checkpoint.metadata},
        "storage": checkpoint.storage.get("type", "server"),
        "training": training,
    }


def _find(checkpoint_uuid: uuid.UUID) -> Checkpoint:
    checkpoint = Checkpoint.objects.select_related("trial__experiment").filter(pk=checkpoint_uuid).first()
    if checkpoint is None:
        raise Missing(f"checkpoint {checkpoint_uuid} not found")
    return checkpoint


class OneCheckpoint(ApiView):
    """One checkpoint. A run reads those of its own experiment and the one that it starts from."""

    run_methods = frozenset({"GET"})

    def get(self, request: Request, checkpoint_uuid: uuid.UUID) -> Response:
        checkpoint = _find(checkpoint_uuid)
        who: Any = request.user
        if isinstance(who, Run) and not _may_read(who.trial, checkpoint):
            raise Missing(f"checkpoint {checkpoint_uuid} not found")
        return Response({"checkpoint": encode_checkpoint(checkpoint)})


def _may_read(trial: Trial | None, checkpoint: Checkpoint) -> bool:
    if trial is None:
        return False
    own = checkpoint.trial.experiment_id == trial.experiment_id
    return own or checkpoint.pk in {trial.latest_checkpoint_id, trial.source_checkpoint_id}


class ReportedCheckpoint(serializers.Serializer[Any]):
    uuid = serializers.UUIDField()
    taskId = serializers.CharField(required=False, allow_null=True)
    allocationId = serializers.CharField(required=False, allow_null=True)
    reportTime = serializers.CharField(required=False, allow_null=True)
    resources = serializers.DictField(child=serializers.CharField(), required=False)
    metadata = serializers.DictField(required=False)
    state = serializers.CharField(required=False)
    storageId = serializers.IntegerField(required=False, allow_null=True)
    training = serializers.DictField(required=False)


class Checkpoints(ApiView):
    """A run reports a checkpoint that it has put into its storage itself."""

    run_methods = frozenset({"POST"})
    bodies = {"POST": ReportedCheckpoint}

    def post(self, request: Request) -> Response:
        who: Any = request.user
        if not isinstance(who, Run):
            raise Forbidden("Only a run may report a checkpoint; its token was not sent.")
        body, trial = self.body(request), who.trial
        if trial is None:
            raise Missing(f"allocation {who.allocation.pk} belongs to no trial")
        metadata = body.get("metadata") or {}
        try:
            data: Json = {
                "uuid": str(body["uuid"]),
                "steps_completed": int(metadata.get("steps_completed") or 0),
                "resources": {path: int(size) for path, size in (body.get("resources") or {}).items()},
                "metadata": metadata,
                "storage": trial.experiment.config.get("checkpoint_storage") or {"type": "server"},
            }
        except (TypeError, ValueError) as error:
            raise BadRequest(
                "checkpoint: sizes in resources and steps_completed must be whole numbers."
            ) from error
        if data["storage"].get("type") == "server":
            raise BadRequest(
                "checkpoints in server storage are uploaded by the runner; report them through the SDK."
            )
        with transaction.atomic():
            transitions.lock(trial.experiment_id)
            checkpoints.reported(trial, member.allocation_id, member.run_key, data)
        return Response({})


def _reporting(request: Request, body: Json) -> tuple[Trial, Member]:
    """Whose checkpoint it is: the run's that asks, or the newest attempt's of a detached trial of the user's."""
    who: Any = request.user
    trials = Trial.objects.select_related("experiment", "task")
    if isinstance(who, Run):
        trial = trials.filter(task_id=who.allocation.task_id).first()
        members = Member.objects.filter(allocation=who.allocation)
    else:
        trial = trials.filter(task_id=body.get("taskId") or "", experiment__unmanaged=True).first()
        if trial is None:
            raise Forbidden("Only a run may report a checkpoint; its token was not sent.")
        require_owner(person(request), trial.experiment)
        detached.sign_of_life(trial)
        members = Member.objects.filter(allocation__task_id=trial.task_id).order_by("-allocation__number")
    member = members.filter(index=0).first()
    if trial is None or member is None:
        raise Missing("the checkpoint is of no trial, or of one that was never started")
    return trial, member
