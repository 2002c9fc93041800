"""One server, as scripts hold it."""

from __future__ import annotations

import json
import logging
from pathlib import Path
from typing import Any, Dict, Iterable, Iterator, List, Optional, Sequence, Tuple, Union
from urllib.parse import quote

from trainmaster import credentials
from trainmaster.common.api import errors
from trainmaster.experimental import _metrics
from trainmaster.experimental._checkpoint import Checkpoint
from trainmaster.experimental._experiment import Experiment
from trainmaster.experimental._metrics import TrainingMetrics, TrialMetrics, ValidationMetrics
from trainmaster.experimental._session import Certificate, Json, Session, log_in
from trainmaster.experimental._trial import Trial
from trainmaster.experimental._user import User, strong_hash
from trainmaster.experimental._vocabulary import NO_OAUTH, ExperimentSortBy, ExperimentState, OrderBy, refused
from trainmaster.experimental._workspace import Workspace

logger = logging.getLogger("trainmaster.client")

PathLike = Union[str, Path]


class Determined:
    """A login at one server; `client` has the same calls on a login that is made once.

    `master` is an address as the command line takes it (default: DET_MASTER); without `user` it is whoever DET_USER
    and DET_PASS name, or who logged in by the command line; inside a run, without both, the run itself. `cert_path`:
    a PEM file of the server's certificate or its authority. `noverify`: no proof at all that this is the server.
    Raises UnauthenticatedException and MasterNotFoundException, ValueError for an address that is none.
    """

    def __init__(
        self,
        master: Optional[str] = None,
        user: Optional[str] = None,
        password: Optional[str] = None,
        cert_path: Optional[str] = None,
        cert_name: Optional[str] = None,
        noverify: bool = False,
    ) -> None:
        self._session: Session = log_in(master, user, password, Certificate(cert_path, cert_name, noverify))

    def logout(self) -> None:
        """End the login at the server, and forget the command line's of this user."""
        self._session.post("/api/v1/auth/logout")
        credentials.Credentials(self._session.master).forget(self._session.username)
        self._session.token = None

    # --- experiments, trials, checkpoints -------------------------------------------------------------------

    def create_experiment(
        self,
        config: Union[PathLike, Dict[str, Any]],
        model_dir: Optional[PathLike] = None,
        includes: Optional[Iterable[PathLike]] = None,
        project_id: Optional[int] = None,
        template: Optional[str] = None,
    ) -> Experiment:
        """Submit a config (a YAML file's path, or a dict) and a folder of code, and activate the experiment.

        ContextError when the folder cannot be sent, OSError when a file cannot be read, and the server's refusal.
        """
        request: Json = {"config": _config_text(config), "activate": True}
        request["modelDefinition"] = _files(model_dir, includes)
        request.update(
            {key: value for key, value in (("projectId", project_id), ("template", template)) if value}
        )
        answer = self._session.upload("/api/v1/experiments", request)
        for notice in answer.get("notices") or answer.get("warnings") or []:
            logger.warning("%s", notice)
        return Experiment._of(self._session, answer["experiment"])

    def continue_experiment(self, experiment_id: int, config: Optional[Dict[str, Any]] = None) -> Experiment:
        """Let an ended experiment go on from its last checkpoints, with these changes of its config."""
        body = {"id": experiment_id, "overrideConfig": json.dumps(config or {})}
        return Experiment._of(
            self._session, self._session.post("/api/v1/experiments/continue", body)["experiment"]
        )

    def get_experiment(self, experiment_id: int) -> Experiment:
        return Experiment(experiment_id, self._session)._reloaded()

    def list_experiments(
        self,
        sort_by: Optional[ExperimentSortBy] = None,
        order_by: Optional[OrderBy] = None,
        experiment_ids: Optional[List[int]] = None,
        labels: Optional[List[str]] = None,
        users: Optional[List[str]] = None,
        states: Optional[List[ExperimentState]] = None,
        name: Optional[str] = None,
        project_id: Optional[int] = None,
    ) -> List[Experiment]:
        """Those that fit all that is given; of `labels` each, of the other lists any. `name` may be a part."""
        query: List[Tuple[str, Any]] = [
            ("experimentIdFilter.incl", number) for number in experiment_ids or ()
        ]
        query += [("labels", label) for label in labels or ()]
        query += [("users", user) for user in users or ()]
        query += [("states", state.value) for state in states or ()]
        single = (
            ("sortBy", sort_by and sort_by.value),
            ("orderBy", order_by and order_by.value),
            ("name", name),
            ("projectId", project_id),
        )
        query += [(key, value) for key, value in single if value]
        return Experiment._all(self._session, query)

    def get_trial(self, trial_id: int) -> Trial:
        return Trial(trial_id, self._session)._reloaded()

    def get_checkpoint(self, uuid: str) -> Checkpoint:
        return Checkpoint(self._session, uuid)._reloaded()

    def iter_trials_metrics(self, trial_ids: List[int], group: str) -> Iterator[TrialMetrics]:
        """What these trials have reported in a group, by trial and step."""
        return _metrics.read(self._session, trial_ids, group, TrialMetrics)

    stream_trials_metrics = iter_trials_metrics  # its older name

    def stream_trials_training_metrics(self, trial_ids: List[int]) -> Iterable[TrainingMetrics]:
        return _metrics.read(self._session, trial_ids, "training", TrainingMetrics)

    def stream_trials_validation_metrics(self, trial_ids: List[int]) -> Iterable[ValidationMetrics]:
        return _metrics.read(self._session, trial_ids, "validation", ValidationMetrics)

    # --- users ----------------------------------------------------------------------------------------------

    def whoami(self) -> User:
        return User._of(self._session, self._session.get("/api/v1/me")["user"])

    def get_session_username(self) -> str:
        """The name that was logged in with."""
        return self._session.username or str(self.whoami().username)

    def get_user_by_id(self, user_id: int) -> User:
        return User(user_id, self._session)._reloaded()

    def get_user_by_name(self, user_name: str) -> User:
        path = f"/api/v1/users/{quote(user_name, safe='')}/by-username"
        return User._of(self._session, self._session.get(path)["user"])

    def list_users(self, active: Optional[bool] = None) -> List[User]:
        query = [] if active is None else [("active", "true" if active else "false")]
        return User._all(self._session, query)

    def create_user(
        self, username: str, admin: bool, password: Optional[str] = None, remote: bool = False
    ) -> User:
        """For admins. ValueError when the password is weak; `remote` users (of a single sign-on) are not known here."""
        if remote:
            raise NotImplementedError(
                "create_user: this server has no single sign-on; create a user with a password."
            )
        body = {
            "user": {"username": username, "admin": admin, "active": True},
            "password": strong_hash(password),
            "isHashed": True,
        }
        return User._of(self._session, self._session.post("/api/v1/users", body)["user"])

    # --- workspaces, templates ------------------------------------------------------------------------------

    def get_workspace(self, name: str) -> Workspace:
        """NotFoundException when there is none of this name."""
        return Workspace(self._session, workspace_name=name)

    def list_workspaces(self) -> List[Workspace]:
        return Workspace._all(self._session)

    def create_workspace(self, name: str) -> Workspace:
        """APIException when there is one of this name."""
        return Workspace._of(
            self._session, self._session.post("/api/v1/workspaces", {"name": name})["workspace"]
        )

    def delete_workspace(self, name: str) -> None:
        """Only an empty one."""
        self._session.call("DELETE", f"/api/v1/workspaces/{self.get_workspace(name).id}")

    def list_templates(self) -> List[str]:
        """Their names."""
        return [row["name"] for row in self._session.pages("/api/v1/templates", "templates")]

    def get_template(self, name: str) -> Dict[str, Any]:
        """The config of a template."""
        return dict(self._session.get(_template(name))["template"]["config"])

    def create_template(self, name: str, config: Dict[str, Any]) -> None:
        """APIException when there is one of this name, or when it is no part of a config."""
        self._session.post(_template(name), {"name": name, "config": config})

    def delete_template(self, name: str) -> None:
        self._session.call("DELETE", _template(name))

    # --- what the server does not have ----------------------------------------------------------------------

    create_model = refused("create_model")
    get_model = refused("get_model")
    get_model_by_id = refused("get_model_by_id")
    get_models = refused("get_models")
    list_models = refused("list_models")
    get_model_labels = refused("get_model_labels")
    list_oauth_clients = refused("list_oauth_clients", NO_OAUTH)
    add_oauth_client = refused("add_oauth_client", NO_OAUTH)
    remove_oauth_client = refused("remove_oauth_client", NO_OAUTH)


def _template(name: str) -> str:
    return f"/api/v1/templates/{quote(name, safe='')}"


def _config_text(config: Union[PathLike, Dict[str, Any]]) -> str:
    """YAML, which JSON is too: the server reads and checks it."""
    if isinstance(config, dict):
        return json.dumps(config, indent=2)
    if isinstance(config, (str, Path)):
        return Path(config).read_text(encoding="utf-8")
    raise ValueError(f"config is {type(config).__name__}; allowed: a dict, or the path of a YAML file.")


def _files(model_dir: Optional[PathLike], includes: Optional[Iterable[PathLike]]) -> Sequence[Json]:
    paths = [Path(each) for each in includes or ()]
    if model_dir is None and not paths:
        return []
    try:
        from trainmaster import context
    except ImportError as error:
        raise errors.BadRequestException(
            f"A folder of code cannot be packed here because the package {error.name} is missing: "
            "pip install trainmaster."
        ) from error
    listing = context.survey(None if model_dir is None else Path(model_dir), paths)
    if listing.skipped:
        logger.info("Skipped from %s: %s", model_dir, ", ".join(str(each) for each in listing.skipped))
    return context.encode(listing)
