"""The experiment config as a whole."""

from __future__ import annotations

import random
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, ConfigDict, Field, model_validator

from experiments.config import older_forms, without_effect
from experiments.config.hangs import Hang
from experiments.config.hyperparameters import Hyperparameter
from experiments.config.integrations import Integrations
from experiments.config.log_policies import LogPolicies, built_ins
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
from submissions.config import masking, resources
from submissions.config.environment import Environment
from submissions.config.resources import BindMounts
from submissions.config.section import (
    LARGEST,
    OLDER,
    DependsOn,
    Entrypoint,
    Ignored,
    Length,
    NotNegative,
    Positive,
    Section,
    leading,
    refuse,
)
from submissions.config.slurm import Slurm
from submissions.config.task_fields import TaskFields

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


def _new_name() -> str:
    return f"Experiment ({random.choice(_ADJECTIVES)}-{random.choice(_ANIMALS)})"


def _labels(value: Any) -> Any:
    if isinstance(value, list) and all(isinstance(label, str) for label in value):
        return list(dict.fromkeys(value))
    return value


class Resources(resources.Resources):
    model_config = ConfigDict(json_schema_extra=leading("slots_per_trial", "max_slots"))

    slots_per_trial: NotNegative = 1
    """Slots (GPUs) of one trial; 0 for none."""
    max_slots: NotNegative | None = None
    """Most slots that all trials of the experiment may hold at once, under either scheduler; null means no limit."""
    slots: NotNegative | None = Field(default=None, exclude=True, json_schema_extra=OLDER)
    """For commands only; no effect in an experiment. Allowed so that templates can serve both."""


class ExperimentConfig(Section):
    """A checked config with its defaults. Make one by `experiments.config.parse`."""

    name: Annotated[str, Field(min_length=1, max_length=255)] = Field(default_factory=_new_name)
    """The name shown in lists; by default Experiment (adjective-animal)."""
    description: str | None = None
    """A longer description."""
    labels: Annotated[list[str], BeforeValidator(_labels)] = []
    """Words to find it by, without duplicates."""
    workspace: str = ""
    """Name of the project's workspace; requires project."""
    project: str = ""
    """Name of an existing project; if empty, the one from the command line, else Uncategorized."""
    entrypoint: Entrypoint | None = None
    """A command for the shell, or a list of words; `module:Class` is the legacy form."""
    data: dict[str, Any] = {}
    """Any data for the training code: info.user_data, context.get_data_config()."""
    debug: bool = False
    """Available to training code; the published SDK logs more with it."""
    max_restarts: NotNegative = 5
    """How often a trial is restarted after failures.

    Fewer times if the last three (`TRAINMASTER_SAME_FAILURES`; 0: never) failed of the same exception at the same step
    on different hosts.
    """
    hyperparameters: dict[str, Hyperparameter] = {}
    """Constants, ranges (type: int, double, log, categorical, const), and maps of both, nested to any depth."""
    searcher: Searcher
    """Which trials are created, and how long they train."""
    resources: Resources = Resources()
    """The resources of each trial."""
    task_container_defaults: TaskContainerDefaults | None = None
    """The cluster settings that an experiment may override."""
    environment: Environment = Environment()
    """The entrypoint's environment: variables, Python, hooks, image."""
    bind_mounts: BindMounts = []
    """Host paths to mount in a container or, without one, in the run's own view of its host."""
    checkpoint_storage: CheckpointStorage = Server(type="server")
    """Where checkpoints are stored, and which are kept."""
    checkpoint_policy: Literal["best", "all", "none"] = "best"
    """Trial API: after which validations it saves a checkpoint: the best so far, all, or none."""
    min_checkpoint_period: Period = Length(batches=0)
    """Trial API: the longest training between checkpoints; 0 saves only at the end and when stopped."""
    min_validation_period: Period = Length(batches=0)
    """Trial API: the longest training between validations; 0 validates only at the end."""
    perform_initial_validation: bool = False
    """Trial API: validate before the first batch."""
    records_per_epoch: NotNegative = 0
    """Obsolete, no effect: the data loader determines the length of an epoch."""
    scheduling_unit: Positive = 100
    """Trial API: batches between reports of training metrics."""
    batches_per_step: Positive | None = Field(default=None, exclude=True, json_schema_extra=OLDER)
    """The older form of scheduling_unit: searcher.max_steps and periods without a unit count steps of it, by
    default 100 batches."""
    reproducibility: Reproducibility = Reproducibility()
    """Seeds."""
    optimizations: Optimizations = Optimizations()
    """Trial API: how gradients and metrics are aggregated."""
    profiling: Profiling = Profiling()
    """What is timed in a trial's steps."""
    depends_on: DependsOn = []
    """Trainmaster extension: jobs that must end before this one starts: numbers of experiments or ids of jobs, each
    with `:success` (the default), `:end` or `:failure`."""
    preemptible: bool = True
    """Trainmaster extension: false prevents preemption, within the pool's quota for such work."""
    preemption_timeout: NotNegative | None = None
    """Seconds to save, counted from when all its hosts have been told to stop, until it is forced; null is 3600."""
    hang: Hang | None = None
    """Trainmaster extension: what is done about trials that make no progress; null uses the pool's rule."""
    log_policies: LogPolicies = Field(default_factory=built_ins)
    """Merged by name with two defaults that only set labels: CUDA OOM and ECC Error."""
    retention_policy: RetentionPolicy | None = None
    """How long logs are kept."""
    integrations: Integrations | None = None
    """Which notification rules the experiment triggers."""
    pbs: Ignored = None
    slurm: Slurm | None = None
    """What is asked of Slurm, in pools that are Slurm clusters."""
    pachyderm: Ignored = None
    security: Ignored = None
    tensorboard_storage: Ignored = None
    data_layer: Ignored = None
    internal: Ignored = None

    @model_validator(mode="before")
    @classmethod
    def _counts_in_steps(cls, data: Any) -> Any:
        return older_forms.with_units(data) if isinstance(data, dict) else data

    @model_validator(mode="after")
    def _steps_are_batches(self) -> ExperimentConfig:
        if self.searcher.max_steps is not None and self.searcher.max_length is None:
            batches = self.searcher.max_steps * (self.batches_per_step or older_forms.STEP_BATCHES)
            if batches > LARGEST:
                raise refuse(f"max_steps of at most {LARGEST} batches in total")
            self.searcher.max_length = Length(batches=batches)
        return self

    def effective(self) -> dict[str, Any]:
        """What is stored with the experiment: every field with its value, as JSON; `slurm` if it is given."""
        found = self.model_dump(mode="json")
        if self.slurm is None:
            del found["slurm"]
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

    def remarks(self) -> list[str]:
        """Sentences about older forms, masks in the place of secrets, and fields that have no effect here."""
        effective = self.effective()
        older = older_forms.remarks(self.searcher.max_steps, effective)
        own_sdk = self.environment.sdk == "installed"
        return [*older, *masking.remarks(effective), *without_effect.remarks(self, own_sdk=own_sdk)]


class TemplateConfig(TaskFields, ExperimentConfig):
    """What a template may have: the fields of experiments, and those that only tasks have."""
