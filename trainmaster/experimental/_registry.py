"""Names of Determined's model registry, which the server does not have: scripts import them, calls are refused."""

from __future__ import annotations

import enum
from typing import Any, Callable, NoReturn

_NO_REGISTRY = (
    "this server has no model registry. Instead, keep the uuid of a checkpoint, give it metadata "
    "with Checkpoint.add_metadata(), and find the best one with Experiment.list_checkpoints()."
)
NO_OAUTH = "this server has no OAuth clients; users log in with a password."


class ModelSortBy(enum.Enum):
    NAME = "SORT_BY_NAME"
    DESCRIPTION = "SORT_BY_DESCRIPTION"
    CREATION_TIME = "SORT_BY_CREATION_TIME"
    LAST_UPDATED_TIME = "SORT_BY_LAST_UPDATED_TIME"
    NUM_VERSIONS = "SORT_BY_NUM_VERSIONS"
    WORKSPACE = "SORT_BY_WORKSPACE"


class Model:
    """Refused: the server has no model registry."""

    def __init__(self, *args: Any, **options: Any) -> None:
        refused("Model")()


class ModelVersion:
    """Refused: the server has no model registry."""

    def __init__(self, *args: Any, **options: Any) -> None:
        refused("ModelVersion")()


def refused(call: str, sentence: str = _NO_REGISTRY) -> Callable[..., NoReturn]:
    """A function or method called `call` that raises NotImplementedError with this sentence."""

    def refuse(*args: Any, **options: Any) -> NoReturn:
        raise NotImplementedError(f"{call}: {sentence}")

    refuse.__name__ = refuse.__qualname__ = call
    return refuse
