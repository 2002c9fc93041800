"""`experiment create --test-mode`: is the config valid, and does the training get through one batch on the cluster?"""

from __future__ import annotations

import argparse
from typing import Callable

import trainmaster.yamltext as yamltext
from trainmaster.cli.errors import OK
from trainmaster.cli.output import done, say, say_notices
from trainmaster.client import Client, Json

Follow = Callable[[Client, int, argparse.Namespace], int]

#: of the searcher, what one batch has too
_KEPT = ("metric", "smaller_is_better", "source_trial_id", "source_checkpoint_uuid")
_NO_CHECKPOINTS = {"save_experiment_best": 0, "save_trial_best": 0, "save_trial_latest": 0}


def shortened(config: Json) -> Json:
    """The config with one trial of one batch, without restarts and without checkpoints that stay."""
    searcher = config.get("searcher")
    kept = {key: searcher[key] for key in _KEPT if key in searcher} if isinstance(searcher, dict) else {}
    return {
        **config,
        "description": f"[test-mode] {config.get('description') or config.get('name') or ''}".strip(),
        "searcher": {**kept, "name": "single", "max_length": {"batches": 1}},
        "scheduling_unit": 1,
        "min_validation_period": {"batches": 1},
        "max_restarts": 0,
        "checkpoint_storage": {**(config.get("checkpoint_storage") or {}), **_NO_CHECKPOINTS},
    }


def run(client: Client, request: Json, args: argparse.Namespace, follow: Follow) -> int:
    """Validate, submit the shortened config, follow it to its end, archive it; the exit code of that training."""
    client.create_experiment({**request, "validateOnly": True})
    done("✔ The config and the folder are valid")
    config = yamltext.dump(shortened(yamltext.load(request["config"])))
    answer = client.create_experiment({**request, "config": config, "activate": True})
    say_notices(answer)
    experiment_id = int(answer["experiment"]["id"])
    done(f"✔ Created test experiment {experiment_id}: one batch, no restarts, no checkpoints kept")
    code = follow(client, experiment_id, args)
    client.post(f"/api/v1/experiments/{experiment_id}/archive")
    if code == OK:
        done("✔ The training completed")
    else:
        say("✘ The training failed", "red")
    return code
