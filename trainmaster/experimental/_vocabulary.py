"""States, orders and modes of the Python client; the values are those of the REST dialect.

Those of Determined's model registry, which the server does not have, can be imported; their calls are refused.
"""

from __future__ import annotations

import enum
from typing import Any, Callable, List, NoReturn, Optional, Tuple, Union

_NO_REGISTRY = (
    "this server has no model registry. Instead, keep the uuid of a checkpoint, give it metadata "
    "with Checkpoint.add_metadata(), and find the best one with Experiment.list_checkpoints()."
)
NO_OAUTH = "this server has no OAuth clients; users log in with a password."


class OrderBy(enum.Enum):
    ASCENDING = "ORDER_BY_ASC"
    ASC = "ORDER_BY_ASC"
    DESCENDING = "ORDER_BY_DESC"
    DESC = "ORDER_BY_DESC"


class ExperimentState(enum.Enum):
    ACTIVE = "STATE_ACTIVE"
    PAUSED = "STATE_PAUSED"
    STOPPING_COMPLETED = "STATE_STOPPING_COMPLETED"
    STOPPING_CANCELED = "STATE_STOPPING_CANCELED"
    STOPPING_ERROR = "STATE_STOPPING_ERROR"
    STOPPING_KILLED = "STATE_STOPPING_KILLED"
    COMPLETED = "STATE_COMPLETED"
    CANCELED = "STATE_CANCELED"
    ERROR = "STATE_ERROR"
    DELETED = "STATE_DELETED"
    DELETING = "STATE_DELETING"
    DELETE_FAILED = "STATE_DELETE_FAILED"
    QUEUED = "STATE_QUEUED"
    PULLING = "STATE_PULLING"
    STARTING = "STATE_STARTING"
    RUNNING = "STATE_RUNNING"


ENDED = frozenset(
    {
        ExperimentState.COMPLETED,
        ExperimentState.CANCELED,
        ExperimentState.ERROR,
        ExperimentState.DELETED,
        ExperimentState.DELETING,
        ExperimentState.DELETE_FAILED,
    }
)


class TrialState(enum.Enum):
    ACTIVE = "STATE_ACTIVE"
    PAUSED = "STATE_PAUSED"
    STOPPING_CANCELED = "STATE_STOPPING_CANCELED"
    STOPPING_KILLED = "STATE_STOPPING_KILLED"
    STOPPING_COMPLETED = "STATE_STOPPING_COMPLETED"
    STOPPING_ERROR = "STATE_STOPPING_ERROR"
    CANCELED = "STATE_CANCELED"
    COMPLETED = "STATE_COMPLETED"
    ERROR = "STATE_ERROR"
    QUEUED = "STATE_QUEUED"
    PULLING = "STATE_PULLING"
    STARTING = "STATE_STARTING"
    RUNNING = "STATE_RUNNING"


class CheckpointState(enum.Enum):
    """ACTIVE: its files are still being uploaded."""

    ACTIVE = "STATE_ACTIVE"
    COMPLETED = "STATE_COMPLETED"
    ERROR = "STATE_ERROR"
    DELETED = "STATE_DELETED"
    PARTIALLY_DELETED = "STATE_PARTIALLY_DELETED"


class ExperimentSortBy(enum.Enum):
    ID = "SORT_BY_ID"
    DESCRIPTION = "SORT_BY_DESCRIPTION"
    START_TIME = "SORT_BY_START_TIME"
    END_TIME = "SORT_BY_END_TIME"
    STATE = "SORT_BY_STATE"
    NUM_TRIALS = "SORT_BY_NUM_TRIALS"
    PROGRESS = "SORT_BY_PROGRESS"
    USER = "SORT_BY_USER"
    NAME = "SORT_BY_NAME"
    FORKED_FROM = "SORT_BY_FORKED_FROM"
    RESOURCE_POOL = "SORT_BY_RESOURCE_POOL"
    PROJECT_ID = "SORT_BY_PROJECT_ID"
    CHECKPOINT_SIZE = "SORT_BY_CHECKPOINT_SIZE"
    CHECKPOINT_COUNT = "SORT_BY_CHECKPOINT_COUNT"
    SEARCHER_METRIC_VAL = "SORT_BY_SEARCHER_METRIC_VAL"


class TrialSortBy(enum.Enum):
    ID = "SORT_BY_ID"
    START_TIME = "SORT_BY_START_TIME"
    END_TIME = "SORT_BY_END_TIME"
    STATE = "SORT_BY_STATE"
    BEST_VALIDATION_METRIC = "SORT_BY_BEST_VALIDATION_METRIC"
    LATEST_VALIDATION_METRIC = "SORT_BY_LATEST_VALIDATION_METRIC"
    BATCHES_PROCESSED = "SORT_BY_BATCHES_PROCESSED"
    DURATION = "SORT_BY_DURATION"
    RESTARTS = "SORT_BY_RESTARTS"
    CHECKPOINT_SIZE = "SORT_BY_CHECKPOINT_SIZE"


class CheckpointSortBy(enum.Enum):
    UUID = "SORT_BY_UUID"
    TRIAL_ID = "SORT_BY_TRIAL_ID"
    BATCH_NUMBER = "SORT_BY_BATCH_NUMBER"
    END_TIME = "SORT_BY_END_TIME"
    STATE = "SORT_BY_STATE"
    SEARCHER_METRIC = "SORT_BY_SEARCHER_METRIC"


class DownloadMode(enum.Enum):
    """DIRECT: from the storage; MASTER: through the server; AUTO: the first that works, in this order."""

    DIRECT = "direct"
    MASTER = "master"
    AUTO = "auto"


class LogLevel(enum.Enum):
    TRACE = "LOG_LEVEL_TRACE"
    DEBUG = "LOG_LEVEL_DEBUG"
    INFO = "LOG_LEVEL_INFO"
    WARNING = "LOG_LEVEL_WARNING"
    ERROR = "LOG_LEVEL_ERROR"
    CRITICAL = "LOG_LEVEL_CRITICAL"


def checkpoint_query(
    sort_by: Optional[Union[str, CheckpointSortBy]], order_by: Optional[OrderBy]
) -> List[Tuple[str, str]]:
    """The order of a list of checkpoints: by a field, by a validation metric, or, without either, the best first.

    Raises AssertionError when only one of them is given, ValueError for a `sort_by` of another type.
    """
    if (sort_by is None) != (order_by is None):
        raise AssertionError("sort_by and order_by must be given together, or not at all.")
    if sort_by is None or order_by is None:
        return [("sortByAttr", CheckpointSortBy.SEARCHER_METRIC.value)]
    if isinstance(sort_by, CheckpointSortBy):
        return [("sortByAttr", sort_by.value), ("orderBy", order_by.value)]
    if not isinstance(sort_by, str):
        raise ValueError(f"sort_by is {sort_by!r}; allowed: a CheckpointSortBy, or the name of a metric.")
    return [("sortByMetric", sort_by), ("orderBy", order_by.value)]


def metric_order(sort_by: Optional[str], smaller_is_better: Optional[bool]) -> Optional[OrderBy]:
    """The order in which the best value of a metric comes first; None where the experiment's own rule holds."""
    if sort_by is None:
        return None
    return OrderBy.ASC if smaller_is_better else OrderBy.DESC


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
