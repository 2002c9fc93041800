"""The config of a new experiment that runs one trial of a search by itself, with the hyperparameters that it had."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from experiments.models import Trial

#: what a search says that one trial needs too; the rest is about trying several
_KEPT = ("metric", "smaller_is_better", "max_length", "source_trial_id", "source_checkpoint_uuid")


def config_of(config: Mapping[str, Any], trial: Trial) -> dict[str, Any]:
    """`config` (as it was submitted) with constants for hyperparameters and the searcher `single`."""
    searcher = config.get("searcher")
    kept = {key: searcher[key] for key in _KEPT if key in searcher} if isinstance(searcher, Mapping) else {}
    return {
        **config,
        "description": f"Trial {trial.pk} of experiment {trial.experiment_id} by itself",
        "searcher": {"name": "single", **kept},
        "hyperparameters": trial.hparams,
    }
