"""Examples of the OpenAPI document: bodies as people and programs send them."""

from __future__ import annotations

from typing import Any

Json = dict[str, Any]

_CONFIG = """name: digits
entrypoint: python3 -m trainmaster.launch.torch_distributed python3 train.py
hyperparameters: {lr: 0.1}
searcher: {name: single, metric: validation_loss, max_length: {batches: 1000}}
resources: {slots_per_trial: 2}
"""
_SWEEP = {
    "name": "digits",
    "entrypoint": "python3 train.py",
    "hyperparameters": {"lr": {"type": "log", "base": 10, "minval": -4, "maxval": -1}},
    "searcher": {
        "name": "adaptive_asha",
        "metric": "validation_loss",
        "max_trials": 16,
        "max_length": {"batches": 1600},
    },
}
_EXPERIMENT = {
    "config": _CONFIG,
    "modelDefinition": [{"path": "train.py", "type": 48, "content": "cHJpbnQoMSkK", "mode": 420}],
    "activate": True,
}
_RUNS = (
    '{"filterGroup": {"kind": "field", "location": "LOCATION_TYPE_RUN_HYPERPARAMETERS", "columnName": "hp.lr", '
    '"type": "COLUMN_TYPE_NUMBER", "operator": "<", "value": 0.1}}'
)
_CHECKPOINT = "5a1f0c3e-8d7b-4b52-9f0e-2c6d1e7a4b90"
_JOB = "0b6e1c9a-3f5d-4a27-8c41-9d2e7f60b1a3"
_OTHER_JOB = "c7d05e1b-6a94-4f3e-b2d8-51f0a9e8c364"
_TIME = "2026-01-31T12:00:00Z"
_RULES = {
    "description": "eight A100 each",
    "scheduler": "priority",
    "preemption": True,
    "defaultPriority": 50,
}
_TRIGGERS = [
    {"triggerType": "TRIGGER_TYPE_EXPERIMENT_STATE_CHANGE", "condition": {"state": "ERROR"}},
    {"triggerType": "TRIGGER_TYPE_LONG_WAIT", "condition": {"minutes": 30}},
]
_NOTE = {"name": "Learning rates", "contents": "Above **0.1** it does not converge."}
_LINES = [{"task_id": "7.night-3", "rank": 0, "log": "epoch 1 begins", "level": "INFO", "stdtype": "stdout"}]
_REPORT = {"stepsCompleted": 100, "metrics": {"avgMetrics": {"loss": 0.25}}}

#: name of a body (a serializer's) -> one that could be sent
BODIES: dict[str, Json] = {
    # people and what they are told
    "LoginBody": {"username": "ada", "password": "A-good-password-1"},
    "NewToken": {"description": "nightly", "lifespan": "720h", "scope": "write"},
    "TokenPatch": {"description": "nightly, of the new machine"},
    "NewUser": {"user": {"username": "grace", "role": "editor", "active": True}},
    "UserPatch": {"displayName": "Grace Hopper", "email": "grace@example.com", "role": "editor"},
    "NewGroup": {"name": "vision", "parent": "research"},
    "GroupChange": {"name": "audio", "parent": ""},
    "GroupSearch": {"name": "research"},
    "SettingsBody": {"settings": [{"key": "theme", "storagePath": "ui", "value": '"dark"'}]},
    "NewWebhook": {
        "name": "failures",
        "url": "https://chat.example.com/hooks/abc",
        "webhookType": "WEBHOOK_TYPE_DEFAULT",
        "mode": "WEBHOOK_MODE_WORKSPACE",
        "scope": "mine",
        "triggers": _TRIGGERS,
        "template": "{{ name }} of {{ user }}: {{ state }}",
    },
    "WebhookFields": {"triggers": _TRIGGERS[:1], "paused": False},
    "CustomBody": {
        "experimentId": 1,
        "data": {"title": "Loss is low", "description": "0.02 after 900 steps", "level": "LOG_LEVEL_INFO"},
    },
    # machines and the queue
    "ClusterMessageBody": {"message": "gpu3 goes down at noon for new disks.", "duration": "2h"},
    "DrainBody": {"drain": True},
    "NewHost": {
        "name": "gpu1",
        "address": "gpu1.example.com",
        "user": "train",
        "pool": "default",
        "jumps": [{"address": "gate.example.com", "user": "ada"}],
    },
    "HostPatch": {"pool": "a100", "python": "/opt/torch/bin/python3"},
    "KeyBody": {"fingerprint": "SHA256:4Zt3mWZQ0Xo2q7iW1m9yN4pQk5cVbT8uEoRrYfHsLdA"},
    "GroupBurnInBody": {"hosts": ["gpu-3", "gpu-4", "gpu-5"]},
    "QuarantineBody": {"slot": 0, "reason": "its fan is loud"},
    "ReleaseBody": {"slot": 1, "hours": 4, "reason": "the vendor looks at it on Monday"},
    "NewPool": {"name": "a100", **_RULES},
    "PoolRules": _RULES,
    "WindowFields": {
        "name": "drivers",
        "starts": "2026-12-01T06:00",
        "ends": "2026-12-01T08:00",
        "timeZone": "Europe/Berlin",
        "weekly": True,
        "slots": 1,
    },
    "JobUpdates": {"updates": [{"jobId": _JOB, "priority": 10}, {"jobId": _OTHER_JOB, "toTop": True}]},
    # what is run once, and what is used while it runs
    "NewCommand": {
        "config": {"entrypoint": ["nvidia-smi"], "resources": {"slots": 1}, "description": "what is there"}
    },
    "NewService": {
        "config": {"resources": {"slots": 1}, "description": "a look at the data", "idle_timeout": "2h"}
    },
    "NewTensorboard": {"experimentIds": [7], "trialIds": [12]},
    "NewSchedule": {
        "name": "nightly",
        "experimentId": 7,
        "cron": "0 3 * * 1-5",
        "timezone": "Europe/Berlin",
        "overlap": "skip",
    },
    "Rerun": {"indices": "0,2"},
    "NewPriority": {"priority": 10},
    "Idle": {"idle": True},
    "KillBody": {"killFromRoot": False},
    # experiments
    "NewExperiment": _EXPERIMENT,
    "ExperimentPatch": {
        "name": "digits, wider",
        "labels": ["baseline"],
        "resources": {"priority": 10, "maxSlots": 8},
        "checkpointStorage": {"saveTrialBest": 1, "saveTrialLatest": 2},
    },
    "ContinueBody": {"id": 7, "overrideConfig": "searcher: {max_length: {batches: 2000}}"},
    "FileBody": {"path": "train.py"},
    "BulkBody": {"experimentIds": [7, 8]},
    "RunsSearch": {"projectId": 1, "limit": 10, "sort": "searcherMetricsVal=asc", "filter": _RUNS},
    "RunsBody": {"projectId": 1, "runIds": [12, 13]},
    "MoveRunsBody": {"sourceProjectId": 1, "destinationProjectId": 2, "runIds": [12, 13]},
    "RetainBody": {"numDays": 90},
    "BulkRetainBody": {"experimentIds": [7, 8], "numDays": 90},
    "PreviewBody": {"config": _SWEEP, "seed": 7},
    "TemplateBody": {"config": {"resources": {"resource_pool": "a100"}}},
    "RenameBody": {"oldName": "a100", "newName": "a100-night"},
    "OperationsBody": {
        "triggeredByEvent": {"id": 4},
        "searcherOperations": [
            {"createTrial": {"requestId": _JOB, "hyperparams": '{"lr": 0.1}'}},
            {"trialOperation": {"validateAfter": {"requestId": _JOB, "length": "100"}}},
        ],
    },
    # trials and their reports
    "NewTrial": {"experimentId": 7, "hparams": {"lr": 0.1}, "unmanaged": True},
    "NamedTrial": {
        "externalTrialId": "night-3",
        "createTrialRequest": {"experimentId": 7, "hparams": {"lr": 0.1}, "unmanaged": True},
    },
    "TrialPatch": {"state": "STATE_COMPLETED"},
    "StartBody": {"resume": True, "members": 2, "hosts": ["laptop", "laptop"]},
    "PrepareBody": {"runId": 12},
    "MetadataBody": {"metadata": {"data": {"version": 3, "cleaned": True}}},
    "ReportBody": {"group": "training", "metrics": {"trialId": 12, **_REPORT}},
    "ReportedMetrics": _REPORT,
    "ProgressBody": {"progress": 0.5},
    "EarlyExitBody": {"reason": "EXITED_REASON_INVALID_HP"},
    "RunnerStateBody": {"state": "validating"},
    "ProfilerBatches": {
        "batches": [
            {
                "labels": {
                    "trialId": 12,
                    "name": "gpu_util",
                    "agentId": "gpu1",
                    "metricType": "PROFILER_METRIC_TYPE_SYSTEM",
                },
                "values": [97.5, 98.0],
                "batches": [100, 101],
                "timestamps": [_TIME, "2026-01-31T12:00:01Z"],
            }
        ]
    },
    "GatherBody": {"numPeers": 2, "requestUuid": _OTHER_JOB, "data": {"address": "10.0.0.1"}},
    "StacksBody": {"ranks": [0, 5]},
    "SourceBody": {"trialSourceInfo": {"trialId": 12, "checkpointUuid": _CHECKPOINT}},
    # checkpoints
    "ReportedCheckpoint": {
        "uuid": _CHECKPOINT,
        "allocationId": f"{_JOB}.1",
        "reportTime": _TIME,
        "resources": {"model.pt": "44700000"},
        "metadata": {"steps_completed": 1000},
        "state": "STATE_COMPLETED",
    },
    "ChosenCheckpoints": {"checkpointUuids": [_CHECKPOINT]},
    "PatchCheckpoints": {
        "checkpoints": [{"uuid": _CHECKPOINT, "resources": {"resources": {"model.pt": 44700000}}}]
    },
    "ChosenFiles": {"checkpointUuids": [_CHECKPOINT], "checkpointGlobs": ["optimizer/**"]},
    "NewMetadata": {"checkpoint": {"metadata": {"quality": "the one we serve"}}},
    # where things are
    "WorkspaceBody": {"name": "vision"},
    "ProjectBody": {"name": "Digits", "description": "what came before faces", "key": "DIG"},
    "ProjectPatch": {"description": "what came before faces"},
    "Note": _NOTE,
    "NotesBody": {"notes": [_NOTE]},
    "MoveBody": {"destinationProjectId": 2},
    "ProjectMoveBody": {"destinationWorkspaceId": 2},
}
#: (method, path) -> what is sent where it has no name
_NAMELESS: dict[tuple[str, str], Any] = {
    ("patch", "/api/v1/templates/{name}"): BODIES["TemplateBody"]["config"],
    ("post", "/api/v1/task/logs"): _LINES,
    ("post", "/task-logs"): _LINES,
}

_ERROR = {"code": 404, "reason": "Not Found", "error": "experiment 7 not found"}
#: of every answer that is no success
ERROR: Json = {"error": _ERROR, "message": _ERROR["error"]}


def add(document: Json) -> None:
    """Put the examples into the document. Raises KeyError for a body that has none."""
    for path, operations in document["paths"].items():
        for method, operation in operations.items():
            for media in operation.get("requestBody", {}).get("content", {}).values():
                name = media["schema"].get("$ref", "").rsplit("/", 1)[-1].removeprefix("Patched")
                media["example"] = BODIES[name] if name else _NAMELESS[method, path]
    document["components"]["schemas"]["ErrorAnswer"]["example"] = ERROR
