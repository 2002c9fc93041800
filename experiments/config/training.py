"""The parts of a config that tell the training loop and the log how to behave."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field

from submissions.config.section import Length, NotNegative, Positive, Section


def _period(value: Any) -> Any:
    return {"batches": value} if isinstance(value, (int, float)) and not isinstance(value, bool) else value


Period = Annotated[Length, BeforeValidator(_period)]


class Reproducibility(Section):
    experiment_seed: Annotated[int, Field(ge=0, le=2**31 - 1)] | None = None
    """null: the server draws one and stores it."""


class Optimizations(Section):
    aggregation_frequency: Positive = 1
    average_aggregated_gradients: bool = True
    average_training_metrics: bool = True
    gradient_compression: bool = False
    mixed_precision: Literal["O0", "O1", "O2", "O3"] = "O0"
    tensor_fusion_threshold: NotNegative = 64
    tensor_fusion_cycle_time: NotNegative = 1
    auto_tune_tensor_fusion: bool = False
    grad_updates_size_file: str | None = None


class Profiling(Section):
    enabled: bool = False
    begin_on_batch: NotNegative = 0
    end_after_batch: NotNegative | None = None
    sync_timings: bool = True
    sampling_interval: Annotated[float, Field(ge=0.1, le=3600)] | None = None
    """Seconds from one sample of its hosts to the next, an extension of ours; null takes the server's setting (1)."""


class TaskContainerDefaults(Section):
    """Of Determined's settings of a cluster the one that an experiment may have an opinion on."""

    dtrain_network_interface: Annotated[str, Field(pattern=r"^[^/\s]{1,15}$")] | None = None
    """The network interface of the hosts over which the trial's ranks meet; null takes the pool's."""


class RetentionPolicy(Section):
    log_retention_days: Annotated[int, Field(ge=-1, le=32767)] | None = None
    """-1 keeps logs for ever; null takes the server's setting."""
