"""The parts of a config that tell the training loop and the log how to behave."""

from __future__ import annotations

import re
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field

from submissions.config.section import Length, NotNegative, OneUnit, Positive, Section, refuse


def _period(value: Any) -> Any:
    return {"batches": value} if isinstance(value, (int, float)) and not isinstance(value, bool) else value


Period = Annotated[Length, BeforeValidator(_period, json_schema_input_type=NotNegative | OneUnit)]


_INTERFACE = r"^[^/\s]{1,15}$"  # of Linux


class Reproducibility(Section):
    experiment_seed: Annotated[int, Field(ge=0, le=2**31 - 1)] | None = None
    """Seed for sampled hyperparameters and each trial's seed; null: the server chooses one and stores it."""


class Optimizations(Section):
    aggregation_frequency: Positive = 1
    """Batches whose gradients are summed before ranks exchange them."""
    average_aggregated_gradients: bool = True
    """Divides the summed gradients by aggregation_frequency."""
    average_training_metrics: bool = True
    """Reported training metrics are the average of all ranks; false reports those of rank 0."""
    gradient_compression: bool = False
    """Ranks exchange gradients as 16-bit floats."""
    mixed_precision: Literal["O0", "O1", "O2", "O3"] = "O0"
    """For NVIDIA Apex, no effect: use PyTorch's autocast."""
    tensor_fusion_threshold: NotNegative = 64
    """MB that Horovod fuses into one exchange; no effect: pass such options to its launch module."""
    tensor_fusion_cycle_time: NotNegative = 1
    """Milliseconds between Horovod's exchanges; no effect, as above."""
    auto_tune_tensor_fusion: bool = False
    """Horovod's autotuning; no effect, as above."""
    grad_updates_size_file: str | None = None
    """A file for the sizes of gradients; no effect."""


class Profiling(Section):
    enabled: bool = False
    """Time the parts of a trial's steps. Hosts are sampled in any case."""
    begin_on_batch: NotNegative = 0
    """The first batch that is timed."""
    end_after_batch: NotNegative | None = None
    """The last batch that is timed; null is no end."""
    sync_timings: bool = True
    """Synchronizes with the GPU around each timing: more accurate, slower."""
    sampling_interval: Annotated[float, Field(ge=0.1, le=3600)] | None = None
    """Trainmaster extension: seconds between samples of the hosts; null uses the server's setting (1)."""


def _interface(value: Any) -> Any:
    if isinstance(value, str) and not re.fullmatch(_INTERFACE, value):
        raise refuse("the name of a network interface, such as eth0")
    return value


class TaskContainerDefaults(Section):
    """The one cluster setting of Determined that an experiment can set."""

    dtrain_network_interface: (
        Annotated[
            str, BeforeValidator(_interface, json_schema_input_type=Annotated[str, Field(pattern=_INTERFACE)])
        ]
        | None
    ) = None
    """The network interface that the trial's ranks use to reach each other; null uses the pool's."""


class RetentionPolicy(Section):
    log_retention_days: Annotated[int, Field(ge=-1, le=32767)] | None = None
    """Days to keep a trial's log after it ends; -1 keeps it forever; null uses the server's setting."""
