"""Determined's `ExperimentConfig`: the effective config of the experiment with questions that training code asks."""

from __future__ import annotations

from typing import Any, Dict, List, Optional, Tuple, Union


class ExperimentConfig(Dict[str, Any]):
    """A config as `get_cluster_info().trial._config` or `context.get_experiment_config()` give it."""

    def debug_enabled(self) -> bool:
        return bool(self.get("debug", False))

    def scheduling_unit(self) -> int:
        return int(self.get("scheduling_unit", 100))

    def native_parallel_enabled(self) -> bool:
        return bool(self["resources"].get("native_parallel", False))

    def average_training_metrics_enabled(self) -> bool:
        return bool(self.get_optimizations_config().get("average_training_metrics", True))

    def slots_per_trial(self) -> int:
        return int(self["resources"]["slots_per_trial"])

    def experiment_seed(self) -> int:
        return int(self.get("reproducibility", {}).get("experiment_seed", 0))

    def profiling_enabled(self) -> bool:
        return bool(self.get("profiling", {}).get("enabled", False))

    def profiling_interval(self) -> Tuple[int, Optional[int]]:
        """The first and last batch that are profiled (None: to the end); (0, 0) for a config without profiling."""
        if not self.profiling_enabled():
            return 0, 0
        profiling = self["profiling"]
        return int(profiling.get("begin_on_batch", 0)), profiling.get("end_after_batch")

    def profiling_sync_timings(self) -> bool:
        return bool(self.get("profiling", {}).get("sync_timings", True))

    def get_records_per_epoch(self) -> Optional[int]:
        records = self.get("records_per_epoch")
        return None if records is None else int(records)

    def get_min_validation_period(self) -> Dict[str, Any]:
        return dict(self.get("min_validation_period") or {})

    def get_min_checkpoint_period(self) -> Dict[str, Any]:
        return dict(self.get("min_checkpoint_period") or {})

    def get_optimizations_config(self) -> Dict[str, Any]:
        return dict(self.get("optimizations") or {})

    def get_searcher_metric(self) -> str:
        """The metric that the search looks at. KeyError for a config without a searcher."""
        return str(self["searcher"]["metric"])

    def get_checkpoint_storage(self) -> Dict[str, Any]:
        return dict(self["checkpoint_storage"])

    def get_entrypoint(self) -> Union[str, List[str]]:
        """As the config has it: text for the shell, or words."""
        found: Union[str, List[str]] = self["entrypoint"]
        return found
