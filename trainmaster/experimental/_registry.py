"""Names of Determined's model registry, which the server does not have: scripts import them, calls are refused."""

from __future__ import annotations

import enum
from typing import Any, NoReturn


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
        refuse("Model")


class ModelVersion:
    """Refused: the server has no model registry."""

    def __init__(self, *args: Any, **options: Any) -> None:
        refuse("ModelVersion")


def refuse(call: str) -> NoReturn:
    raise NotImplementedError(
        f"{call}: this server has no model registry. Instead, keep the uuid of a checkpoint, give it metadata "
        "with Checkpoint.add_metadata(), and find the best one with Experiment.list_checkpoints()."
    )


def refuse_oauth(call: str) -> NoReturn:
    raise NotImplementedError(f"{call}: this server has no OAuth clients; users log in with a password.")
