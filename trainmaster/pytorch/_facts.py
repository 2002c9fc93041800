"""What a trial can ask about itself: hyperparameters, configuration, ids, batch sizes."""

from __future__ import annotations

import logging
from typing import Any, Dict, NamedTuple, Optional

from trainmaster._info import ClusterInfo
from trainmaster.core import DistributedContext

logger = logging.getLogger("trainmaster.pytorch")

#: fields of `optimizations` that PyTorch's DistributedDataParallel has no use for, and their defaults
_MEANINGLESS = {
    "auto_tune_tensor_fusion": False,
    "tensor_fusion_threshold": 64,
    "tensor_fusion_cycle_time": 1,
    "mixed_precision": "O0",
    "grad_updates_size_file": None,
}


class Optimizations(NamedTuple):
    """The config's section `optimizations`."""

    aggregation_frequency: int = 1
    average_aggregated_gradients: bool = True
    average_training_metrics: bool = True
    gradient_compression: bool = False


def optimizations_of(config: Dict[str, Any], aggregation_frequency: Optional[int] = None) -> Optimizations:
    """As the config says, or the argument, which wins. ValueError for a frequency under 1."""
    section = {
        name: value for name, value in (config.get("optimizations") or {}).items() if value is not None
    }
    known = {name: value for name, value in section.items() if name in Optimizations._fields}
    if aggregation_frequency is not None:
        known["aggregation_frequency"] = aggregation_frequency
    found = Optimizations(**known)
    frequency = found.aggregation_frequency
    if isinstance(frequency, bool) or not isinstance(frequency, int) or frequency < 1:
        raise ValueError(f"aggregation_frequency is {frequency!r}; it must be a whole number, 1 or more.")
    return found


def note_meaningless(config: Dict[str, Any]) -> None:
    """Say once which settings change nothing here."""
    section = config.get("optimizations") or {}
    for name, default in _MEANINGLESS.items():
        if section.get(name, default) not in (default, 5, 5.0):  # 5 ms was an older default of the cycle time
            instead = " Use context.experimental.use_amp()." if name == "mixed_precision" else ""
            logger.warning(
                "optimizations.%s has no effect: gradients are exchanged by PyTorch's DistributedDataParallel, "
                "which chooses its own message sizes.%s",
                name,
                instead,
            )


class TrialFacts:
    """The part of the trial's context that only answers questions."""

    def __init__(
        self,
        info: Optional[ClusterInfo],
        distributed: DistributedContext,
        hparams: Dict[str, Any],
        config: Dict[str, Any],
    ) -> None:
        self.distributed = distributed
        self._info = info
        self._trial = info._trial if info else None  # None in a command or a notebook, too
        self._hparams = hparams
        self._config = config

    def get_experiment_config(self) -> Dict[str, Any]:
        """The whole configuration."""
        return self._config

    def get_data_config(self) -> Dict[str, Any]:
        """The section `data` of the configuration."""
        data: Dict[str, Any] = self._config.get("data") or {}
        return data

    def get_experiment_id(self) -> int:
        """-1 outside of a trial."""
        return self._trial.experiment_id if self._trial else -1

    def get_trial_id(self) -> int:
        """-1 outside of a trial."""
        return self._trial.trial_id if self._trial else -1

    def get_trial_seed(self) -> int:
        """`random`, `numpy.random` and PyTorch are seeded with it; outside of a trial the experiment's seed, or 0."""
        if self._trial is not None:
            return self._trial.trial_seed
        return int((self._config.get("reproducibility") or {}).get("experiment_seed") or 0)

    def get_hparams(self) -> Dict[str, Any]:
        """All hyperparameters of this trial."""
        return self._hparams

    def get_hparam(self, name: str) -> Any:
        """One hyperparameter; ValueError names those that there are."""
        if name not in self._hparams:
            known = ", ".join(sorted(map(str, self._hparams))) or "none"
            raise ValueError(f"There is no hyperparameter {name!r}; available: {known}.")
        return self._hparams[name]

    def get_global_batch_size(self) -> int:
        """Samples in a batch of all slots together: the hyperparameter, less what the slots cannot share."""
        return self.get_per_slot_batch_size() * self.distributed.size

    def get_per_slot_batch_size(self) -> int:
        """`global_batch_size` // slots; ValueError when the hyperparameter is missing or smaller than the slots."""
        wanted = self.get_hparam("global_batch_size")
        slots = self.distributed.size
        if isinstance(wanted, bool) or not isinstance(wanted, int) or wanted < slots:
            raise ValueError(
                f"The hyperparameter global_batch_size is {wanted!r}; it must be a whole number, "
                f"and at least the number of slots, {slots}."
            )
        return wanted // slots
