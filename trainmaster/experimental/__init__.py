"""Namespace of Determined's `determined.experimental`: the Python client and its classes, and detached mode.

Members are imported at their first use: training code that asks for none of them does not pay for them.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any, List

if TYPE_CHECKING:
    from trainmaster.experimental import client as client
    from trainmaster.experimental.client import Checkpoint as Checkpoint
    from trainmaster.experimental.client import Determined as Determined
    from trainmaster.experimental.client import Experiment as Experiment
    from trainmaster.experimental.client import Trial as Trial

_MODULES = ("client", "core_v2")
_NAMES = (
    "Checkpoint",
    "Determined",
    "Experiment",
    "ExperimentReference",
    "Model",
    "ModelOrderBy",
    "ModelSortBy",
    "ModelVersion",
    "OrderBy",
    "Project",
    "Trial",
    "TrialOrderBy",
    "TrialReference",
    "TrialSortBy",
)
_OLDER = {"ExperimentReference": "Experiment", "TrialReference": "Trial"}


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return importlib.import_module(f"trainmaster.experimental.{name}")
    if name in _NAMES:
        value = getattr(importlib.import_module("trainmaster.experimental.client"), _OLDER.get(name, name))
        globals()[name] = value
        return value
    raise AttributeError(f"module 'trainmaster.experimental' has no attribute {name!r}")


def __dir__() -> List[str]:
    return sorted({*globals(), *_NAMES, *_MODULES})
