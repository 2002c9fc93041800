"""The server from Python: submit, follow, steer and fetch results.

The functions work on one login, that of `login(...)`, or of the environment and the command line when none was made:

    from determined.experimental import client

    experiment = client.create_experiment("config.yaml", model_dir=".")
    if experiment.wait() is client.ExperimentState.COMPLETED:
        experiment.list_checkpoints()[0].download("best")

For several servers or users at once, `Determined(...)` has the same calls. docs/python-client.md has them all.
"""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any, Dict, Iterable, Iterator, List, NoReturn, Optional, Union

from trainmaster.experimental._checkpoint import Checkpoint, CheckpointTrainingMetadata
from trainmaster.experimental._determined import Determined
from trainmaster.experimental._experiment import Experiment
from trainmaster.experimental._metrics import TrainingMetrics, TrialMetrics, ValidationMetrics
from trainmaster.experimental._registry import Model, ModelSortBy, ModelVersion, refuse
from trainmaster.experimental._trial import Trial
from trainmaster.experimental._user import User
from trainmaster.experimental._vocabulary import (
    CheckpointSortBy,
    CheckpointState,
    DownloadMode,
    ExperimentSortBy,
    ExperimentState,
    LogLevel,
    OrderBy,
    TrialSortBy,
    TrialState,
)
from trainmaster.experimental._workspace import Project, ResourcePool, Workspace

__all__ = [
    "Checkpoint",
    "CheckpointOrderBy",
    "CheckpointSortBy",
    "CheckpointState",
    "CheckpointTrainingMetadata",
    "Determined",
    "DownloadMode",
    "Experiment",
    "ExperimentOrderBy",
    "ExperimentSortBy",
    "ExperimentState",
    "LogLevel",
    "Model",
    "ModelOrderBy",
    "ModelSortBy",
    "ModelVersion",
    "OrderBy",
    "Project",
    "ResourcePool",
    "TrainingMetrics",
    "Trial",
    "TrialMetrics",
    "TrialOrderBy",
    "TrialSortBy",
    "TrialState",
    "User",
    "ValidationMetrics",
    "Workspace",
    "continue_experiment",
    "create_experiment",
    "create_model",
    "create_template",
    "create_user",
    "create_workspace",
    "delete_template",
    "delete_workspace",
    "get_checkpoint",
    "get_experiment",
    "get_model",
    "get_model_by_id",
    "get_model_labels",
    "get_models",
    "get_session_username",
    "get_template",
    "get_trial",
    "get_user_by_id",
    "get_user_by_name",
    "get_workspace",
    "iter_trials_metrics",
    "list_experiments",
    "list_models",
    "list_templates",
    "list_users",
    "list_workspaces",
    "login",
    "logout",
    "stream_trials_metrics",
    "stream_trials_training_metrics",
    "stream_trials_validation_metrics",
    "whoami",
]

#: older names of OrderBy
CheckpointOrderBy = ExperimentOrderBy = ModelOrderBy = TrialOrderBy = OrderBy

_lock = threading.Lock()
_login: Optional[Determined] = None


def login(
    master: Optional[str] = None,
    user: Optional[str] = None,
    password: Optional[str] = None,
    cert_path: Optional[str] = None,
    cert_name: Optional[str] = None,
    noverify: bool = False,
) -> None:
    """Make the login that all functions of this module use, as Determined(...) says; a later one replaces it."""
    global _login
    made = Determined(master, user, password, cert_path, cert_name, noverify)
    with _lock:
        _login = made


def _server() -> Determined:
    global _login
    with _lock:
        if _login is None:
            _login = Determined()
        return _login


def logout() -> None:
    """End the login. The next call makes a new one."""
    global _login
    _server().logout()
    with _lock:
        _login = None


def create_experiment(
    config: Union[str, Path, Dict[str, Any]],
    model_dir: Union[str, Path, None] = None,
    includes: Optional[Iterable[Union[str, Path]]] = None,
    project_id: Optional[int] = None,
    template: Optional[str] = None,
) -> Experiment:
    return _server().create_experiment(config, model_dir, includes, project_id, template)


def continue_experiment(experiment_id: int, config: Optional[Dict[str, Any]] = None) -> Experiment:
    return _server().continue_experiment(experiment_id, config)


def get_experiment(experiment_id: int) -> Experiment:
    return _server().get_experiment(experiment_id)


def list_experiments(
    sort_by: Optional[ExperimentSortBy] = None,
    order_by: Optional[OrderBy] = None,
    experiment_ids: Optional[List[int]] = None,
    labels: Optional[List[str]] = None,
    users: Optional[List[str]] = None,
    states: Optional[List[ExperimentState]] = None,
    name: Optional[str] = None,
    project_id: Optional[int] = None,
) -> List[Experiment]:
    return _server().list_experiments(
        sort_by, order_by, experiment_ids, labels, users, states, name, project_id
    )


def get_trial(trial_id: int) -> Trial:
    return _server().get_trial(trial_id)


def get_checkpoint(uuid: str) -> Checkpoint:
    return _server().get_checkpoint(uuid)


def iter_trials_metrics(trial_ids: List[int], group: str) -> Iterator[TrialMetrics]:
    return _server().iter_trials_metrics(trial_ids, group)


def stream_trials_metrics(trial_ids: List[int], group: str) -> Iterable[TrialMetrics]:
    return _server().stream_trials_metrics(trial_ids, group)


def stream_trials_training_metrics(trial_ids: List[int]) -> Iterable[TrainingMetrics]:
    return _server().stream_trials_training_metrics(trial_ids)


def stream_trials_validation_metrics(trial_ids: List[int]) -> Iterable[ValidationMetrics]:
    return _server().stream_trials_validation_metrics(trial_ids)


def whoami() -> User:
    return _server().whoami()


def get_session_username() -> str:
    return _server().get_session_username()


def get_user_by_id(user_id: int) -> User:
    return _server().get_user_by_id(user_id)


def get_user_by_name(user_name: str) -> User:
    return _server().get_user_by_name(user_name)


def list_users(active: Optional[bool] = None) -> List[User]:
    return _server().list_users(active)


def create_user(username: str, admin: bool, password: Optional[str] = None, remote: bool = False) -> User:
    return _server().create_user(username, admin, password, remote)


def get_workspace(name: str) -> Workspace:
    return _server().get_workspace(name)


def list_workspaces() -> List[Workspace]:
    return _server().list_workspaces()


def create_workspace(name: str) -> Workspace:
    return _server().create_workspace(name)


def delete_workspace(name: str) -> None:
    _server().delete_workspace(name)


def list_templates() -> List[str]:
    return _server().list_templates()


def get_template(name: str) -> Dict[str, Any]:
    return _server().get_template(name)


def create_template(name: str, config: Dict[str, Any]) -> None:
    _server().create_template(name, config)


def delete_template(name: str) -> None:
    _server().delete_template(name)


def create_model(*args: Any, **options: Any) -> NoReturn:
    refuse("create_model")


def get_model(*args: Any, **options: Any) -> NoReturn:
    refuse("get_model")


def get_model_by_id(*args: Any, **options: Any) -> NoReturn:
    refuse("get_model_by_id")


def get_models(*args: Any, **options: Any) -> NoReturn:
    refuse("get_models")


def list_models(*args: Any, **options: Any) -> NoReturn:
    refuse("list_models")


def get_model_labels() -> NoReturn:
    refuse("get_model_labels")
