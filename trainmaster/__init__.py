"""Trainmaster's client: the Core API for training code, launch modules, the host part and the CLI.

`import trainmaster as det` has the shape of Determined's `det`. Submodules are imported at their first use,
because every rank pays for what this file imports.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any, List

if TYPE_CHECKING:
    from trainmaster import core, experimental, launch
    from trainmaster import pytorch as pytorch
    from trainmaster._experiment_config import ExperimentConfig
    from trainmaster._import_from_path import import_from_path
    from trainmaster._info import ClusterInfo, TrialInfo, get_cluster_info
    from trainmaster.errors import InvalidHP

__version__ = "0.1.0"

__all__ = [
    "LOG_FORMAT",
    "ClusterInfo",
    "ExperimentConfig",
    "InvalidHP",
    "TrialInfo",
    "__version__",
    "core",
    "experimental",
    "get_cluster_info",
    "import_from_path",
    "launch",
]  # without pytorch: `from determined import *` must not import PyTorch

LOG_FORMAT = "%(levelname)s: [%(process)s] %(name)s: %(message)s"

_MODULES = ("core", "experimental", "launch", "lightning", "pytorch", "transformers")
_NAMES = {
    "ClusterInfo": "trainmaster._info",
    "TrialInfo": "trainmaster._info",
    "get_cluster_info": "trainmaster._info",
    "import_from_path": "trainmaster._import_from_path",
    "InvalidHP": "trainmaster.errors",
    "ExperimentConfig": "trainmaster._experiment_config",
}


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return importlib.import_module(f"trainmaster.{name}")
    if name in _NAMES:
        value = getattr(importlib.import_module(_NAMES[name]), name)
        globals()[name] = value
        return value
    raise AttributeError(f"module 'trainmaster' has no attribute {name!r}")


def __dir__() -> List[str]:
    return sorted({*globals(), *__all__})
