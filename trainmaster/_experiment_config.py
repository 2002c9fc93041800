"""Determined's `ExperimentConfig`: the effective config of the experiment with questions that training code asks."""

from __future__ import annotations

from typing import Any, Dict, List, Union


class ExperimentConfig(Dict[str, Any]):
    """A config as `get_cluster_info().trial._config` or `context.get_experiment_config()` give it."""

    def debug_enabled(self) -> bool:
        return bool(self.get("debug", False))

    def scheduling_unit(self) -> int:
        return int(self.get("scheduling_unit", 100))

    def slots_per_trial(self) -> int:
        return int(self["resources"]["slots_per_trial"])

    def experiment_seed(self) -> int:
        return int(self.get("reproducibility", {}).get("experiment_seed", 0))

    def profiling_enabled(self) -> bool:
        return bool(self.get("profiling", {}).get("enabled", False))

    def get_searcher_metric(self) -> str:
        """The metric that the search looks at. KeyError for a config without a searcher."""
        return str(self["searcher"]["metric"])

    def get_checkpoint_storage(self) -> Dict[str, Any]:
        return dict(self["checkpoint_storage"])

    def get_entrypoint(self) -> Union[str, List[str]]:
        """As the config has it: text for the shell, or words."""
        found: Union[str, List[str]] = self["entrypoint"]
        return found
