"""Requests of the REST dialect that succeed in the golden world: the document's examples, about rows that are there."""

from __future__ import annotations

from typing import Any

from accounts.models import User
from experiments.models import Checkpoint, Experiment, Trial
from jobs.models import Allocation
from shown.rest_bodies import BODIES
from tests.rig.golden_world import UNMANAGED, World

Json = dict[str, Any]
#: the parameters of an address that differ from those of the others, and a body; None: as the document has it
Example = tuple[dict[str, object], Any]


def of(world: World) -> dict[str, Example]:
    """`METHOD route` -> its example, for those that fail with the rows and the body that all others have."""
    return {f"{method} {route}": example for (method, route), example in _found(world).items()}


def _found(world: World) -> dict[tuple[str, str], Example]:
    running, ended = (Experiment.objects.get(name=name) for name in ("running", "failed"))
    waiting, laptop = (Experiment.objects.get(name=name) for name in ("waiting", "laptop"))
    trial, detached = Trial.objects.get(experiment=running), Trial.objects.get(experiment=laptop)
    allocation = Allocation.objects.get(pk=world.places["allocations/allocation_id"][0])
    spare = Checkpoint.objects.get(trial=trial, steps_completed=3)
    gone: dict[str, object] = {"experiment_id": ended.pk}
    chosen = {"checkpointUuids": [str(spare.pk)]}
    peers = {**BODIES["GatherBody"], "numPeers": 1}
    edit = {"updates": [{"jobId": str(waiting.job_id), "priority": 33}]}
    lines = [{"task_id": detached.task_id, "rank": 0, "log": "epoch 1 begins"}]
    labels = {**BODIES["ProfilerBatches"]["batches"][0]["labels"], "trialId": trial.pk}
    made = {**BODIES["NewTrial"], "experimentId": laptop.pk}
    v1, e, a = "/api/v1", "/api/v1/experiments/{experiment_id}", "/api/v1/allocations/{allocation_id}"
    return {
        ("POST", f"{a}/all_gather"): ({}, peers),
        ("POST", f"{a}/notify_container_running"): ({}, peers),
        ("POST", f"{v1}/checkpoints"): ({}, {**BODIES["ReportedCheckpoint"], "allocationId": allocation.pk}),
        ("PATCH", f"{v1}/checkpoints"): (
            {}, {"checkpoints": [{"uuid": str(spare.pk), "resources": {"resources": {"model.pt": 7}}}]}),
        ("DELETE", f"{v1}/checkpoints"): ({}, chosen),
        ("POST", f"{v1}/checkpoints/deletion-preview"): ({}, chosen),
        ("POST", f"{v1}/checkpoints/rm"): ({}, {**chosen, "checkpointGlobs": ["model.pt"]}),
        ("PUT", f"{v1}/experiments/by-external-id/{{external_id}}"): (
            {}, {"config": UNMANAGED, "unmanaged": True}),
        ("POST", f"{v1}/experiments/continue"): ({}, {**BODIES["ContinueBody"], "id": ended.pk}),
        ("DELETE", e): (gone, None),
        ("POST", f"{e}/archive"): (gone, None),
        ("POST", f"{e}/unarchive"): (gone, None),
        ("DELETE", f"{e}/tensorboard-files"): (gone, None),
        ("POST", f"{v1}/group-burn-ins"): ({}, {"hosts": ["gpu1", "gpu2"]}),
        ("POST", f"{v1}/hosts"): ({}, {**BODIES["NewHost"], "name": "gpu9", "address": "gpu9.example.com"}),
        ("PATCH", f"{v1}/hosts/{{name}}"): ({}, {"python": "/opt/torch/bin/python3"}),
        ("POST", f"{v1}/hosts/{{name}}/release"): ({"name": "gpu2"}, BODIES["ReleaseBody"]),
        ("POST", f"{v1}/job-queues"): ({}, edit),
        ("POST", f"{v1}/job-queues/preview"): ({}, edit),
        ("POST", f"{v1}/schedules"): ({}, {**BODIES["NewSchedule"], "name": "weekly", "experimentId": running.pk}),
        ("POST", f"{v1}/projects/{{project_id}}/experiments/move"): (
            {}, {"experimentIds": [running.pk], "destinationProjectId": int(world.places["projects/project_id"][0])}),
        ("POST", f"{v1}/resource-pools"): ({}, {**BODIES["NewPool"], "name": "b100"}),
        ("DELETE", f"{v1}/resource-pools/{{name}}"): ({"name": "a100"}, None),
        ("POST", f"{v1}/runs/start"): ({}, {"runId": trial.pk}),
        ("POST", f"{v1}/task/logs"): ({}, lines),
        ("POST", "/task-logs"): ({}, lines),
        ("PATCH", f"{v1}/template/rename"): ({}, {"oldName": "night", "newName": "dawn"}),
        ("POST", f"{v1}/templates/{{name}}"): ({"name": "dawn"}, None),
        ("POST", f"{v1}/tensorboards"): ({}, {"experimentIds": [running.pk], "trialIds": [trial.pk]}),
        ("POST", f"{v1}/trial-source-info"): (
            {}, {"trialSourceInfo": {"trialId": trial.pk, "checkpointUuid": str(spare.pk)}}),
        ("POST", f"{v1}/trials"): ({}, made),
        ("PUT", f"{v1}/trials"): ({}, {"externalTrialId": "day-1", "createTrialRequest": made}),
        ("POST", f"{v1}/trials/profiler/metrics"): (
            {}, {"batches": [{**BODIES["ProfilerBatches"]["batches"][0], "labels": labels}]}),
        ("POST", f"{v1}/trials/{{trial_id}}/start"): ({"trial_id": detached.pk}, None),
        ("POST", f"{v1}/users"): ({}, {"user": {"username": "hugo", "role": "editor", "active": True}}),
        ("PATCH", f"{v1}/users/{{user_id}}"): ({"user_id": User.objects.get(username="grace").pk}, None),
        ("POST", f"{v1}/workspaces"): ({}, {"name": "speech"}),
        ("POST", f"{v1}/workspaces/{{workspace_id}}/projects"): ({}, {"name": "Faces", "key": "FAC"}),
        ("PATCH", f"{v1}/trials/{{trial_id}}"): ({"trial_id": detached.pk}, None),
    }  # fmt: skip
