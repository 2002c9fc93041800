"""Checkpoints: what they hold and where they come from; reports of runs that use the published SDK."""

from __future__ import annotations

import uuid
from typing import Any

from django.db import transaction
from rest_framework import serializers
from rest_framework.request import Request

from accounts.rights import Right
from dispatch.runs import detached
from events.announce import announce
from events.models import Event
from events.record import record
from experiments import checkpoint_deletion, checkpoints, transitions
from experiments.models import Trial
from jobs.models import Allocation, Member
from webui.api.answers import Answer
from webui.api.authentication import trial_of
from webui.api.checkpoint_deletion import (
    ChosenCheckpoints,
    DescribedCheckpoint,
    PatchCheckpoints,
    delete_all,
    described,
    patch_all,
)
from webui.api.checkpoint_encoding import CheckpointRecord, encode_checkpoint, find
from webui.api.errors import BadRequest, Forbidden, Missing
from webui.api.permissions import actor, person, require_owner
from webui.api.views import ApiView, Json


class CheckpointAnswer(Answer):
    checkpoint: CheckpointRecord


class DescribedAnswer(Answer):
    checkpoint: DescribedCheckpoint


class OneCheckpoint(ApiView):
    """One checkpoint. A run reads those of its own experiment and the one that it starts from."""

    rights = {"GET": Right.READ | Right.RUN}

    def get(self, request: Request, checkpoint_uuid: uuid.UUID) -> DescribedAnswer | CheckpointAnswer:
        who: Any = request.user
        if not isinstance(who, Allocation):
            return DescribedAnswer(checkpoint=described(find(checkpoint_uuid)))
        trial = trial_of(who)
        if trial is None:
            raise Missing("This run does not belong to a trial, so it has no checkpoints.")
        checkpoint = find(checkpoint_uuid, checkpoints.open_to(trial))
        return CheckpointAnswer(checkpoint=encode_checkpoint(checkpoint))


class WithMetadata(serializers.Serializer[Any]):
    metadata = serializers.DictField()


class NewMetadata(serializers.Serializer[Any]):
    checkpoint = WithMetadata()


class CheckpointMetadata(ApiView):
    """Replace a checkpoint's metadata. Its step stays the same."""

    rights = {"POST": Right.EDIT}
    bodies = {"POST": NewMetadata}

    def post(self, request: Request, checkpoint_uuid: uuid.UUID) -> CheckpointAnswer:
        checkpoint = find(checkpoint_uuid)
        require_owner(person(request), checkpoint.trial.experiment)
        sent = self.body(request)["checkpoint"]["metadata"]
        checkpoint.metadata = checkpoint_deletion.edited(checkpoint.metadata, sent)
        with transaction.atomic():
            checkpoint.save(update_fields=["metadata"])
            record(
                Event.Kind.CHECKPOINT,
                checkpoint.pk,
                reason="metadata_changed",
                actor=actor(request),
                experiment_id=checkpoint.trial.experiment_id,
            )
        announce(f"experiment:{checkpoint.trial.experiment_id}")
        return CheckpointAnswer(checkpoint=encode_checkpoint(checkpoint))


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
    """A run reports a checkpoint that it stored itself, or the files that it removed from checkpoints;
    users delete checkpoints, or report the same."""

    rights = {"PATCH": Right.EDIT | Right.RUN, "DELETE": Right.EDIT, "POST": Right.EDIT | Right.RUN}
    bodies = {"POST": ReportedCheckpoint, "PATCH": PatchCheckpoints, "DELETE": ChosenCheckpoints}

    def patch(self, request: Request) -> None:
        patch_all(request, self.body(request)["checkpoints"])

    def delete(self, request: Request) -> None:
        delete_all(request, self.body(request)["checkpointUuids"])

    def post(self, request: Request) -> None:
        body = self.body(request)
        trial, member = _reporting(request, body)
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


def _reporting(request: Request, body: Json) -> tuple[Trial, Member]:
    """Whose checkpoint it is: the run's that asks, or the newest attempt's of a detached trial of the user's."""
    who: Any = request.user
    trials = Trial.objects.select_related("experiment", "task")
    if isinstance(who, Allocation):
        trial = trials.filter(task_id=who.task_id).first()
        members = Member.objects.filter(allocation=who)
    else:
        trial = trials.filter(task_id=body.get("taskId") or "", experiment__unmanaged=True).first()
        if trial is None:
            raise Forbidden("Only a run can report a checkpoint; send the run's token.")
        require_owner(person(request), trial.experiment)
        detached.sign_of_life(trial)
        members = Member.objects.filter(allocation__task_id=trial.task_id).order_by("-allocation__number")
    member = members.filter(index=0).first()
    if trial is None or member is None:
        raise Missing("the checkpoint does not belong to a trial, or its trial was never started")
    return trial, member
