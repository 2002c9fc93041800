"""Deletion of checkpoints: whole ones, files of them, and what a policy would delete."""

from __future__ import annotations

import uuid
from typing import Annotated, Any

from pydantic import Field
from rest_framework import serializers
from rest_framework.request import Request

from accounts.rights import Right
from experiments import checkpoint_deletion, stored_files
from experiments.keeping import Policy
from experiments.models import Checkpoint, Experiment
from experiments.states import USABLE
from jobs.models import Allocation
from webui.api import encoding
from webui.api.answers import Answer, Nothing, Number64, Time
from webui.api.authentication import trial_of
from webui.api.checkpoint_encoding import CheckpointRecord, encode_checkpoint
from webui.api.errors import Conflict, Missing, existing
from webui.api.permissions import actor, person, require_owner
from webui.api.trial_encoding import CheckpointStateName, checkpoint_state
from webui.api.views import ApiView, Json


class ChosenCheckpoints(serializers.Serializer[Any]):
    checkpointUuids = serializers.ListField(
        child=serializers.UUIDField(), allow_empty=False, max_length=10_000
    )


class ChosenFiles(ChosenCheckpoints):
    checkpointGlobs = encoding.list_of(serializers.CharField(), default=list)


def own(request: Request, uuids: list[uuid.UUID]) -> list[Checkpoint]:
    """The checkpoints, which must exist and be of the user's experiments. Raises Missing or Forbidden."""
    rows = {
        row.pk: row
        for row in Checkpoint.objects.filter(pk__in=uuids).select_related("trial__experiment__owner")
    }
    user = person(request)
    for pk in uuids:
        if pk not in rows:
            raise Missing(f"checkpoint {pk} not found")
        require_owner(user, rows[pk].trial.experiment)
    return list(rows.values())


def delete_all(request: Request, uuids: list[uuid.UUID]) -> None:
    """Delete all of these, or none. Raises Missing, Forbidden or Conflict."""
    own(request, uuids)
    checkpoint_deletion.delete(uuids, actor=actor(request))


class Losing(Answer):
    uuid: str
    trial_id: int
    steps_completed: int
    state: CheckpointStateName
    size_bytes: Number64
    losses: Annotated[list[str], Field(description="sentences: what it is the latest or the best of")]


class PreviewAnswer(Answer):
    checkpoints: list[Losing]
    refusals: Annotated[list[str], Field(description="sentences: why it cannot be deleted")]
    size_bytes: Number64


class DeletionPreview(ApiView):
    """What deleting these checkpoints would lose, and why they cannot be deleted. Changes nothing."""

    rights = {"POST": Right.OWN}
    bodies = {"POST": ChosenCheckpoints}

    def post(self, request: Request) -> PreviewAnswer:
        uuids = self.body(request)["checkpointUuids"]
        found = Checkpoint.objects.filter(pk__in=uuids).select_related("trial__experiment")
        rows = {row.pk: row for row in found}
        if missing := [pk for pk in uuids if pk not in rows]:
            raise Missing(f"checkpoint {missing[0]} not found")
        experiments = {row.trial.experiment_id: row.trial.experiment for row in rows.values()}
        facts = {pk: checkpoint_deletion.standing(experiment) for pk, experiment in experiments.items()}
        answer = [
            Losing.of(
                row,
                uuid=str(row.pk),
                state=checkpoint_state(row),
                size_bytes=str(row.size_bytes),
                losses=checkpoint_deletion.lost_with(row, facts[row.trial.experiment_id]),
            )
            for row in rows.values()
        ]
        refusals = list(checkpoint_deletion.objections(list(rows.values())))
        size = sum(row.size_bytes for row in rows.values())
        return PreviewAnswer(checkpoints=answer, refusals=refusals, size_bytes=str(size))


class FilesLeft(serializers.Serializer[Any]):
    resources = serializers.DictField(child=serializers.IntegerField(min_value=0))


class PatchedCheckpoint(serializers.Serializer[Any]):
    """`resources`: the remaining files, path -> bytes; empty deletes the checkpoint, absent changes nothing."""

    uuid = serializers.UUIDField()
    resources = FilesLeft(required=False, allow_null=True)


class PatchCheckpoints(serializers.Serializer[Any]):
    checkpoints = serializers.ListField(child=PatchedCheckpoint(), allow_empty=False, max_length=10_000)


def patch_all(request: Request, wanted: list[Json]) -> None:
    """Note for all of these which of their files are left, or for none. A run may do so for its own experiment.

    Raises Missing, Forbidden or Conflict.
    """
    uuids, who = [each["uuid"] for each in wanted], request.user
    if not isinstance(who, Allocation):
        own(request, uuids)
    else:
        trial = trial_of(who)
        experiment_id = trial.experiment_id if trial else None
        rows = Checkpoint.objects.filter(pk__in=uuids, trial__experiment=experiment_id)
        if missing := set(uuids) - set(rows.values_list("pk", flat=True)):
            raise Missing(f"this run's experiment has no checkpoint {min(map(str, missing))}")
    left = {each["uuid"]: each["resources"]["resources"] for each in wanted if each.get("resources")}
    checkpoint_deletion.left_there(left, actor=actor(request))


class RemovedAnswer(Answer):
    removed_files: int


class RemoveFiles(ApiView):
    """Remove files that match globs from checkpoints; without globs, list the existing files again."""

    rights = {"POST": Right.EDIT}
    bodies = {"POST": ChosenFiles}

    def post(self, request: Request) -> RemovedAnswer | Nothing:
        body = self.body(request)
        rows = own(request, body["checkpointUuids"])
        if not body["checkpointGlobs"]:
            for row in rows:
                _refresh(row)
            return Nothing()
        removed = checkpoint_deletion.remove_files(
            body["checkpointUuids"], body["checkpointGlobs"], actor=actor(request)
        )
        return RemovedAnswer(removed_files=removed)


def _refresh(row: Checkpoint) -> None:
    if row.state not in USABLE:
        return
    try:
        there = stored_files.store_of(row).listing()
    except OSError as error:
        raise Conflict(str(error)) from error
    if not there:
        raise Conflict(
            f"None of the files of checkpoint {row.pk} is in its storage; its record is unchanged."
        )
    checkpoint_deletion.found_there(row.pk, there)


class GcPolicy(serializers.Serializer[Any]):
    """Numbers that are not given stay unchanged."""

    save_experiment_best = serializers.IntegerField(required=False, min_value=0)
    save_trial_best = serializers.IntegerField(required=False, min_value=0)
    save_trial_latest = serializers.IntegerField(required=False, min_value=0)


class GcRow(Answer):
    """A checkpoint that would be deleted, with the old client's capitalized names."""

    uuid: Annotated[str, Field(alias="UUID")]
    trial_id: Annotated[int, Field(alias="TrialID")]
    steps_completed: Annotated[int, Field(alias="StepsCompleted")]
    state: Annotated[str, Field(alias="State")]
    report_time: Annotated[Time, Field(alias="ReportTime")]
    resources: Annotated[dict[str, int], Field(alias="Resources", description="path of a file -> its bytes")]
    size: Annotated[int, Field(alias="Size", description="bytes")]
    validation_metrics: Annotated[Json, Field(alias="ValidationMetrics")]
    step: Annotated[Json, Field(description="used by the client to count checkpoints with a validation")]


class GcAnswer(Answer):
    checkpoints: list[GcRow]
    metric_name: Annotated[str, Field(alias="metric_name")]
    kept: int


class PreviewGc(ApiView):
    """The checkpoints that a policy would delete, in the published client's format. Changes nothing."""

    rights = {"GET": Right.READ}
    queries = {"GET": GcPolicy}

    def get(self, request: Request, experiment_id: int) -> GcAnswer:
        experiment = existing(Experiment.objects, "experiment", pk=experiment_id)
        query = self.query(request)
        policy = Policy.of(experiment.config).changed(
            query.get("save_experiment_best"), query.get("save_trial_best"), query.get("save_trial_latest")
        )
        facts = checkpoint_deletion.standing(experiment, policy)
        metric = experiment.searcher_metric
        rows = [_to_go(row, metric, facts) for row in facts.to_go()]
        return GcAnswer(checkpoints=rows, metric_name=metric, kept=len(facts.kept))


def _to_go(row: Checkpoint, metric: str, facts: checkpoint_deletion.Standing) -> GcRow:
    value = facts.metrics.get((row.trial_id, row.steps_completed))
    values = {} if value is None else {metric: value if value == value else "NaN"}
    return GcRow.of(
        row,
        uuid=str(row.pk),
        state=checkpoint_state(row).removeprefix("STATE_"),
        report_time=row.reported_at,
        resources={path: int(size) for path, size in row.resources.items()},
        size=row.size_bytes,
        validation_metrics=values,
        step={"validation": {"metrics": {"validation_metrics": values}} if values else None},
    )


class PatchCheckpointStorage(serializers.Serializer[Any]):
    saveExperimentBest = serializers.IntegerField(required=False, allow_null=True, min_value=0)
    saveTrialBest = serializers.IntegerField(required=False, allow_null=True, min_value=0)
    saveTrialLatest = serializers.IntegerField(required=False, allow_null=True, min_value=0)


def patch_policy(experiment: Experiment, wanted: Json, *, actor: str) -> None:
    """Change how many checkpoints are kept; equal numbers change nothing of what the queue runs."""
    if all(number is None for number in wanted.values()):
        return
    policy = Policy.of(experiment.config).changed(
        wanted.get("saveExperimentBest"), wanted.get("saveTrialBest"), wanted.get("saveTrialLatest")
    )
    checkpoint_deletion.change_policy(experiment.pk, policy, actor=actor)


class StartedTrial(Answer):
    trial_id: int
    experiment_id: int


class DescribedCheckpoint(CheckpointRecord):
    kept_because: Annotated[list[str], Field(description="why the policy keeps it; empty if it does not")]
    started_trials: list[StartedTrial]


def described(row: Checkpoint) -> DescribedCheckpoint:
    """One checkpoint with why it is kept and which trials began with it, of ours beside the dialect."""
    facts = checkpoint_deletion.standing(row.trial.experiment)
    began = row.started.order_by("pk").values_list("pk", "experiment_id")
    return DescribedCheckpoint.of(
        encode_checkpoint(row),
        kept_because=facts.kept.get(row.pk, []),
        started_trials=[
            StartedTrial(trial_id=trial, experiment_id=experiment) for trial, experiment in began
        ],
    )
