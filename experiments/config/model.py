"""The experiment config as a whole."""

from __future__ import annotations

import random
import re
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field

from experiments.config.hyperparameters import Hyperparameter
from experiments.config.log_policies import LogPolicies, built_ins
from experiments.config.resources import Resources
from experiments.config.searcher import Searcher
from experiments.config.storage import CheckpointStorage, Server
from experiments.config.training import (
    Optimizations,
    Period,
    Profiling,
    Reproducibility,
    RetentionPolicy,
    TaskContainerDefaults,
)
from submissions.config import without_effect
from submissions.config.environment import Environment
from submissions.config.resources import BindMounts
from submissions.config.section import Entrypoint, Ignored, Length, NotNegative, Positive, Section

_ADJECTIVES = [
    "amber",
    "brisk",
    "calm",
    "clear",
    "eager",
    "early",
    "fair",
    "gentle",
    "keen",
    "lucky",
    "mellow",
    "noble",
    "quiet",
    "rapid",
    "steady",
    "swift",
]
_ANIMALS = [
    "badger",
    "crane",
    "falcon",
    "gecko",
    "heron",
    "ibex",
    "jay",
    "lynx",
    "marten",
    "newt",
    "otter",
    "plover",
    "robin",
    "stoat",
    "tern",
    "wren",
]
_LEGACY = re.compile(r"^[A-Za-z0-9_.]+:[A-Za-z0-9_]+$")


def _new_name() -> str:
    return f"Experiment ({random.choice(_ADJECTIVES)}-{random.choice(_ANIMALS)})"


def _labels(value: Any) -> Any:
    if isinstance(value, list) and all(isinstance(label, str) for label in value):
        return list(dict.fromkeys(value))
    return value


class ExperimentConfig(Section):
    """A checked config with its defaults. Make one by `experiments.config.parse`."""

    name: Annotated[str, Field(min_length=1, max_length=255)] = Field(default_factory=_new_name)
    description: str | None = None
    labels: Annotated[list[str], BeforeValidator(_labels)] = []
    workspace: str = ""
    project: str = ""
    entrypoint: Entrypoint | None = None
    """A command for the shell, or a list of words; `module:Class` is the legacy form."""
    data: dict[str, Any] = {}
    debug: bool = False
    max_restarts: NotNegative = 5
    hyperparameters: dict[str, Hyperparameter] = {}
    searcher: Searcher
    resources: Resources = Resources()
    task_container_defaults: TaskContainerDefaults | None = None
    environment: Environment = Environment()
    bind_mounts: BindMounts = []
    checkpoint_storage: CheckpointStorage = Server(type="server")
    checkpoint_policy: Literal["best", "all", "none"] = "best"
    min_checkpoint_period: Period = Length(batches=0)
    min_validation_period: Period = Length(batches=0)
    perform_initial_validation: bool = False
    records_per_epoch: NotNegative = 0
    scheduling_unit: Positive = 100
    reproducibility: Reproducibility = Reproducibility()
    optimizations: Optimizations = Optimizations()
    profiling: Profiling = Profiling()
    preemptible: bool = True
    """Trainmaster's own: false asks not to be stopped for others, within the pool's quota for it."""
    preemption_timeout: NotNegative | None = None
    """Seconds from the request to stop until it is forced; null is 3600."""
    log_policies: LogPolicies = Field(default_factory=built_ins)
    """Joined by name with two that are always there, which only label: CUDA OOM and ECC Error."""
    retention_policy: RetentionPolicy | None = None
    integrations: Ignored = None
    pbs: Ignored = None
    slurm: Ignored = None
    pachyderm: Ignored = None
    security: Ignored = None
    tensorboard_storage: Ignored = None
    data_layer: Ignored = None
    internal: Ignored = None

    def effective(self) -> dict[str, Any]:
        """What is stored with the experiment: every field with its value, as JSON."""
        found = self.model_dump(mode="json")
        lengths = (
            found["min_checkpoint_period"],
            found["min_validation_period"],
            found["searcher"]["max_length"],
        )
        for length in lengths:
            if isinstance(length, dict):
                for unit in [unit for unit, count in length.items() if count is None]:
                    del length[unit]
        return found

    def variables(self, kind: str) -> dict[str, str]:
        """The config's environment variables for slots of `kind` (cpu, cuda or rocm); later ones win."""
        pairs: list[str] = getattr(self.environment.environment_variables, kind)
        return dict(pair.split("=", 1) for pair in pairs)

    def remarks(self) -> list[str]:
        """Sentences about fields that are accepted and have no effect here."""
        ignored = (
            "integrations", "pbs", "slurm", "pachyderm", "security", "tensorboard_storage", "data_layer", "internal",
        )  # fmt: skip
        return without_effect.remarks(self, ignored)


def legacy_trial(entrypoint: object) -> str | None:
    """`entrypoint` if it is the legacy form `module:Class`, else None."""
    return entrypoint if isinstance(entrypoint, str) and _LEGACY.match(entrypoint) else None
