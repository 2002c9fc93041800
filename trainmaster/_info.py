"""What a task can know about itself and its gang: `get_cluster_info()`."""

from __future__ import annotations

import contextlib
import json
import os
from functools import lru_cache
from pathlib import Path
from typing import Any, Dict, List, Optional, cast

from trainmaster.address import BadAddress, canonical
from trainmaster.identity import Identity, identity_of
from trainmaster.paths import RunPaths
from trainmaster.protocol import FIRST_MASTER, RUN_DIR, ServerAddress, Spec, Trial


class TrialInfo:
    """The trial of this task: ids, seed, hyperparameters (as sampled) and where it resumes."""

    def __init__(self, trial: Trial, interface: Optional[str] = None) -> None:
        self.trial_id: int = trial["trial_id"]
        self.experiment_id: int = trial["experiment_id"]
        self.trial_seed: int = trial["trial_seed"]
        self.hparams: Dict[str, Any] = trial["hparams"]
        self._config: Dict[str, Any] = trial["config"]
        self._trial_run_id: int = trial["run_id"]
        self._steps_completed: int = trial["steps_completed"]
        self._debug: bool = bool(trial["config"].get("debug"))
        self._inter_node_network_interface = interface


class ClusterInfo:
    """One gang member's view of its task.

    `container_addrs` has the address of every host of the gang, `container_slot_counts` their slots, and
    `container_rank` is this host's place in both. `slot_ids` are this host's slots. The first
    address is the chief's. `master_cert_file` is the server's certificate where it serves HTTPS with one of its own,
    `master_cert_name` the name in it; both are None elsewhere.
    """

    def __init__(self, spec: Spec, server: ServerAddress, run_dir: str) -> None:
        gang, trial = spec["gang"], spec.get("trial")
        self.master_url: str = server["urls"][0] if server["urls"] else ""
        self.cluster_id: str = spec["cluster"]["id"]
        self.agent_id: str = spec["host"]["name"]
        self.slot_ids: List[int] = [slot["index"] for slot in spec["slots"]]
        self.task_id: str = spec["task_id"]
        self.allocation_id: str = spec["allocation_id"]
        self.session_token: str = spec["token"]
        self.task_type: str = spec["task_type"]
        certificate = RunPaths(Path(run_dir)).certificate if server.get("cert_pem") else None
        self.master_cert_name: Optional[str] = server.get("cert_name") if certificate else None
        self.master_cert_file: Optional[str] = str(certificate) if certificate else None
        self.latest_checkpoint: Optional[str] = trial["latest_checkpoint"] if trial else None
        self.user_data: Dict[str, Any] = spec["user_data"]
        self.container_addrs: List[str] = gang["addresses"]
        self.container_slot_counts: List[int] = gang["slot_counts"]
        self.container_rank: int = spec["member"]
        self.gpu_uuids: List[str] = [slot["uuid"] for slot in spec["slots"] if slot["kind"] == "cuda"]
        self.ports: Dict[str, int] = gang["ports"]
        self._trial = TrialInfo(trial, gang["interface"]) if trial else None
        self._run_dir = run_dir
        self._cert_sha256 = server["cert_sha256"]
        self._secret: str = gang["secret"]
        self._identity = identity_of(spec)
        self._checkpoint_storage: Dict[str, Any] = spec["checkpoint_storage"]

    @property
    def trial(self) -> TrialInfo:
        """RuntimeError in a task that is no trial."""
        if self._trial is None:
            raise RuntimeError(f"This task is a {self.task_type}; only a TRIAL has trial information.")
        return self._trial

    @property
    def chief_address(self) -> str:
        """The chief's host as every member can dial it: the loopback address when it is the only one."""
        return "127.0.0.1" if len(self.container_addrs) == 1 else self.container_addrs[0]

    def __repr__(self) -> str:  # never the token
        return f"<ClusterInfo {self.task_type} {self.allocation_id} member {self.container_rank}>"


_known: Dict[str, ClusterInfo] = {}


def get_cluster_info() -> Optional[ClusterInfo]:
    """This task's information, or None when the program runs off the cluster.

    RuntimeError when the run folder that the environment names cannot be read.
    """
    run_dir = os.environ.get(RUN_DIR)
    if not run_dir:
        return None
    if run_dir not in _known:
        _known[run_dir] = ClusterInfo(_spec_of(run_dir), read_server_address(run_dir), run_dir)
    return _known[run_dir]


@lru_cache(maxsize=None)
def _spec_of(run_dir: str) -> Spec:
    return cast(Spec, _read(run_dir, "spec.json"))


def identity_behind(token: Optional[str], url: str) -> Optional[Identity]:
    """Which server may get `token` at `url`: this run's own if it is this run's token, and wherever the run's server is
    said to be, or was at its start, since anybody may listen there. Else None: whoever answers.

    What the program has put in the place of DET_MASTER is another server.
    """
    run_dir = os.environ.get(RUN_DIR)
    if not run_dir or not token:
        return None
    try:
        spec = _spec_of(run_dir)
    except RuntimeError:  # the folder is gone, and the run with it
        return None
    own = [os.environ.get(FIRST_MASTER, "")]
    with contextlib.suppress(RuntimeError, KeyError):  # the job has overwritten the file
        own += read_server_address(run_dir)["urls"]
    is_own = spec["token"] == token or _canonical(url) in {_canonical(each) for each in own if each}
    return identity_of(spec) if is_own else None


def _canonical(url: str) -> str:
    """The same for all ways to write an address; what is none as it is."""
    try:
        return canonical(url)
    except BadAddress:
        return url


def read_server_address(run_dir: str) -> ServerAddress:
    """How to reach the server now: the file may be rewritten while the task runs."""
    try:
        return cast(ServerAddress, _read(run_dir, "server.json"))
    except FileNotFoundError:
        return {"urls": [], "cert_sha256": None}


def _read(run_dir: str, name: str) -> Any:
    path = Path(run_dir, name)
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        if name == "server.json":
            raise
        raise RuntimeError(
            f"{RUN_DIR} is {run_dir}, which contains no {name}; unset it outside the cluster."
        ) from error
    except (OSError, ValueError) as error:
        raise RuntimeError(
            f"{path} cannot be read: {error}. This file belongs to the run and must not be changed."
        ) from error
