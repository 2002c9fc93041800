"""The server's part of a detached run: who asks, and the experiment, trial and attempt that are made or reopened."""

from __future__ import annotations

import json
import os
from typing import Any, Callable, Dict, List, NamedTuple, Optional, TypeVar
from urllib.parse import quote

from trainmaster.common.api import errors
from trainmaster.core import DistributedContext
from trainmaster.experimental import _session
from trainmaster.experimental._session import Session
from trainmaster.experimental.core_v2._config import Config
from trainmaster.protocol import ServerAddress

Json = Dict[str, Any]
Answer = TypeVar("Answer")

NOWHERE = (
    "This detached run has no server address. Set DET_MASTER (or TRAINMASTER_MASTER) to its address, for example "
    "export DET_MASTER=http://gpu-server:8080, or pass client=Determined(master=...)."
)
NOBODY = (
    "This detached run has no login at {url}. Run `trainmaster user login NAME` once on this machine, or set "
    "DET_USER_TOKEN to a token, or DET_USER and DET_PASS."
)


class Attempt(NamedTuple):
    """What the server said: `run` as in docs/protocol.md, "Detached runs"; the steps are the latest checkpoint's."""

    run: Json
    steps_completed: int
    latest_checkpoint: Optional[str]
    server: ServerAddress


def on_chief(distributed: DistributedContext, action: Callable[[], Answer]) -> Answer:
    """What `action` gives on rank 0, for all ranks; where it fails, the others get a RuntimeError with its words."""
    if distributed.rank != 0:
        problem, answer = distributed.broadcast(None)
        if problem is not None:
            raise RuntimeError(f"Rank 0 could not start the detached run: {problem}")
        return answer  # type: ignore[no-any-return]  # it is what rank 0 has made
    try:
        answer = action()
    except BaseException as error:
        distributed.broadcast((str(error) or repr(error), None))
        raise
    distributed.broadcast((None, answer))
    return answer


def log_in(client: Optional[Any]) -> Session:
    """The session of a client that the script has made, else of the environment or the command line's login.

    ValueError or UnauthenticatedException: a sentence that says what to set.
    """
    if client is not None:
        session: Session = client._session
        return session
    if not (os.environ.get("TRAINMASTER_MASTER") or os.environ.get("DET_MASTER")):
        raise ValueError(NOWHERE)
    session = _session.log_in(None, None, None)
    try:
        session.get("/api/v1/me")
    except errors.UnauthenticatedException:
        raise errors.UnauthenticatedException(NOBODY.format(url=session.master)) from None
    return session


def begin(session: Session, config: Config, document: Json, hosts: List[str]) -> Attempt:
    """Make the experiment and the trial, or reopen those of the external ids, and start an attempt."""
    experiment_id = int(_experiment(session, config, document)["experiment"]["id"])
    trial_id = int(_trial(session, config, experiment_id, document["hyperparameters"])["trial"]["id"])
    resumes = config.external_trial_id is not None
    body = {"trialId": trial_id, "resume": resumes, "members": len(hosts), "hosts": hosts}
    answer = session.post(f"/api/v1/trials/{trial_id}/start", body)
    run = answer.get("run")
    if run is None:
        raise RuntimeError(
            f"The server at {session.master} is too old for detached runs; it must have this version."
        )
    checkpoint = answer.get("latestCheckpoint")
    uuid = checkpoint.get("uuid") if isinstance(checkpoint, dict) else checkpoint
    return Attempt(run, int(answer.get("stepsCompleted") or 0), uuid or None, session.address())


def _experiment(session: Session, config: Config, document: Json) -> Json:
    body = {"config": json.dumps(document), "unmanaged": True}
    if config.external_experiment_id is None:
        return dict(session.upload("/api/v1/experiments", body))
    name = quote(config.external_experiment_id, safe="")
    return dict(session.call("PUT", f"/api/v1/experiments/by-external-id/{name}", body))


def _trial(session: Session, config: Config, experiment_id: int, hparams: Json) -> Json:
    request = {"experimentId": experiment_id, "hparams": hparams, "unmanaged": True}
    if config.external_trial_id is None:
        return dict(session.post("/api/v1/trials", request))
    body = {"createTrialRequest": request, "externalTrialId": config.external_trial_id}
    return dict(session.call("PUT", "/api/v1/trials", body))
