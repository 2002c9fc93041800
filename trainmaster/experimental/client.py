"""The server from Python: submit, follow, steer and fetch results.

The functions work on one login, that of `login(...)`, or of the environment and the command line when none was made:

    from determined.experimental import client

    experiment = client.create_experiment("config.yaml", model_dir=".")
    if experiment.wait() is client.ExperimentState.COMPLETED:
        experiment.list_checkpoints()[0].download("best")

For several servers or users at once, `Determined(...)` has the same calls. docs/python-client.md has them all.
"""

from __future__ import annotations

import inspect
import threading
from typing import TYPE_CHECKING, Callable, Optional, TypeVar

from trainmaster.experimental._checkpoint import Checkpoint, CheckpointTrainingMetadata
from trainmaster.experimental._determined import Determined
from trainmaster.experimental._experiment import Experiment
from trainmaster.experimental._metrics import TrainingMetrics, TrialMetrics, ValidationMetrics
from trainmaster.experimental._trial import Trial
from trainmaster.experimental._user import User
from trainmaster.experimental._vocabulary import (
    CheckpointSortBy,
    CheckpointState,
    DownloadMode,
    ExperimentSortBy,
    ExperimentState,
    LogLevel,
    Model,
    ModelSortBy,
    ModelVersion,
    OrderBy,
    TrialSortBy,
    TrialState,
)
from trainmaster.experimental._workspace import Project, ResourcePool, Workspace

if TYPE_CHECKING:  # not in Python 3.8
    from typing import Concatenate, ParamSpec

    Given = ParamSpec("Given")
Answer = TypeVar("Answer")

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


def _here(method: Callable[Concatenate[Determined, Given], Answer]) -> Callable[Given, Answer]:
    """The method as a function of this module, on its login."""

    def call(*given: Given.args, **named: Given.kwargs) -> Answer:
        return method(_server(), *given, **named)

    call.__name__ = call.__qualname__ = method.__name__
    call.__doc__ = method.__doc__
    signature = inspect.signature(method)
    vars(call)["__signature__"] = signature.replace(parameters=list(signature.parameters.values())[1:])
    return call


create_experiment = _here(Determined.create_experiment)
continue_experiment = _here(Determined.continue_experiment)
get_experiment = _here(Determined.get_experiment)
list_experiments = _here(Determined.list_experiments)
get_trial = _here(Determined.get_trial)
get_checkpoint = _here(Determined.get_checkpoint)
iter_trials_metrics = _here(Determined.iter_trials_metrics)
stream_trials_metrics = _here(Determined.stream_trials_metrics)
stream_trials_training_metrics = _here(Determined.stream_trials_training_metrics)
stream_trials_validation_metrics = _here(Determined.stream_trials_validation_metrics)
whoami = _here(Determined.whoami)
get_session_username = _here(Determined.get_session_username)
get_user_by_id = _here(Determined.get_user_by_id)
get_user_by_name = _here(Determined.get_user_by_name)
list_users = _here(Determined.list_users)
create_user = _here(Determined.create_user)
get_workspace = _here(Determined.get_workspace)
list_workspaces = _here(Determined.list_workspaces)
create_workspace = _here(Determined.create_workspace)
delete_workspace = _here(Determined.delete_workspace)
list_templates = _here(Determined.list_templates)
get_template = _here(Determined.get_template)
create_template = _here(Determined.create_template)
delete_template = _here(Determined.delete_template)

#: refused without a login, too
create_model = Determined.create_model
get_model = Determined.get_model
get_model_by_id = Determined.get_model_by_id
get_models = Determined.get_models
list_models = Determined.list_models
get_model_labels = Determined.get_model_labels
