"""Examples of the OpenAPI document: bodies as people send them, for the requests that most begin with."""

from __future__ import annotations

from typing import Any

Json = dict[str, Any]

_CONFIG = """name: digits
entrypoint: python3 -m trainmaster.launch.torch_distributed python3 train.py
hyperparameters: {lr: 0.1}
searcher: {name: single, metric: validation_loss, max_length: {batches: 1000}}
resources: {slots_per_trial: 2}
"""

#: (method, path) -> a body that could be sent
BODIES: dict[tuple[str, str], Json] = {
    ("POST", "/api/v1/auth/login"): {"username": "ada", "password": "A-good-password-1"},
    ("POST", "/api/v1/experiments"): {
        "config": _CONFIG,
        "modelDefinition": [{"path": "train.py", "type": 48, "content": "cHJpbnQoMSkK", "mode": 420}],
        "activate": True,
    },
    ("POST", "/api/v1/commands"): {
        "config": {"entrypoint": ["nvidia-smi"], "resources": {"slots": 1}, "description": "what is there"}
    },
    ("POST", "/api/v1/tokens"): {"description": "nightly", "lifespan": "720h", "scope": "write"},
    ("POST", "/api/v1/users"): {"user": {"username": "grace", "role": "editor", "active": True}},
    ("POST", "/api/v1/workspaces"): {"name": "vision"},
    ("PUT", "/api/v1/templates/{name}"): {"config": {"resources": {"resource_pool": "a100"}}},
    ("POST", "/api/v1/webhooks"): {
        "name": "failures",
        "url": "https://chat.example.com/hooks/abc",
        "webhookType": "WEBHOOK_TYPE_DEFAULT",
        "mode": "WEBHOOK_MODE_WORKSPACE",
        "scope": "mine",
        "triggers": [
            {"triggerType": "TRIGGER_TYPE_EXPERIMENT_STATE_CHANGE", "condition": {"state": "ERROR"}},
            {"triggerType": "TRIGGER_TYPE_LONG_WAIT", "condition": {"minutes": 30}},
        ],
        "template": "{{ name }} of {{ user }}: {{ state }}",
    },
    ("POST", "/api/v1/webhooks/custom"): {
        "experimentId": 1,
        "data": {"title": "Loss is low", "description": "0.02 after 900 steps", "level": "LOG_LEVEL_INFO"},
    },
}

_ERROR = {"code": 404, "reason": "Not Found", "error": "experiment 7 not found"}
#: of every answer that is no success
ERROR: Json = {"error": _ERROR, "message": _ERROR["error"]}


def add(document: Json) -> None:
    """Put the examples into the document."""
    for (method, path), body in BODIES.items():
        content = document["paths"][path][method.lower()]["requestBody"]["content"]
        for kind in content.values():
            kind["example"] = body
    document["components"]["schemas"]["ErrorAnswer"]["example"] = ERROR
