"""The entrypoint of trials with `environment: {sdk: installed}`: the host's own package `determined`, as it is.

That package reads /run/determined, one folder for the whole machine, and many runs share a host. So this process needs
the run's own view of it (`own_view`), in which /run is its own. It writes there what the package expects, and becomes
`determined.exec.launch`, which starts the entrypoint of the config.
"""

from __future__ import annotations

import importlib.machinery
import json
import os
import sys
from pathlib import Path
from typing import Any, Dict, NoReturn

from trainmaster._info import ClusterInfo, get_cluster_info
from trainmaster.runner import mount_namespace, own_view

INFO = Path("/run/determined/info")
_REFUSED = (
    "environment.sdk: installed needs a separate mount namespace for the run, which this host does not allow: {}. "
    "Allow unprivileged user namespaces there, run the job as root, or omit the field"
)
_MISSING = (
    "environment.sdk is installed, and {} has no package determined: install it there, or omit the field"
)


def info_files(info: ClusterInfo) -> Dict[str, Any]:
    """Name -> content of the package's files in /run/determined/info (0.18 to 0.38)."""
    trial = info.trial
    return {
        "cluster.json": {
            "master_url": info.master_url,
            "cluster_id": info.cluster_id,
            "agent_id": info.agent_id,
            "slot_ids": info.slot_ids,
            "task_id": info.task_id,
            "allocation_id": info.allocation_id,
            "session_token": info.session_token,
            "task_type": info.task_type,
            "master_cert_name": os.environ.get("DET_MASTER_CERT_NAME"),
            "master_cert_file": os.environ.get("DET_MASTER_CERT_FILE"),
            "latest_checkpoint": info.latest_checkpoint,
        },
        "trial.json": {
            "trial_id": trial.trial_id,
            "experiment_id": trial.experiment_id,
            "trial_seed": trial.trial_seed,
            "hparams": trial.hparams,
            "config": {**trial._config, "checkpoint_storage": storage(trial._config["checkpoint_storage"])},
            "steps_completed": trial._steps_completed,
            "trial_run_id": trial._trial_run_id,
            "debug": bool(trial._config.get("debug")),
            "inter_node_network_interface": os.environ.get("DET_INTER_NODE_NETWORK_INTERFACE"),
        },
        "rendezvous.json": {
            "container_addrs": info.container_addrs,
            "container_rank": info.container_rank,
            "container_slot_counts": info.container_slot_counts,
        },
        "resources.json": {"gpu_uuids": info.gpu_uuids},
    }


def storage(section: Dict[str, Any]) -> Dict[str, Any]:
    """The section as the package finds it: where it expects `shared_fs` to be mounted, here nothing is."""
    if section.get("type") != "shared_fs":
        return section
    folder = os.path.join(section["host_path"], section.get("storage_path") or "")  # noqa: PTH118
    kept = {name: value for name, value in section.items() if name.startswith("save_")}
    return {**kept, "type": "directory", "container_path": folder}


def main() -> None:
    """Does not return; SystemExit with a sentence where the package cannot run."""
    info = get_cluster_info()
    if info is None:
        raise RuntimeError("This is the entrypoint of a run, but there is no run.")
    if importlib.machinery.PathFinder.find_spec("determined") is None:
        _leave(_MISSING.format(sys.executable))
    if not own_view.is_taken(Path(info._run_dir, "code")):
        _leave(_REFUSED.format(mount_namespace.problem() or "the reason is above"))
    INFO.mkdir(parents=True, mode=0o700)
    for name, content in info_files(info).items():
        (INFO / name).write_text(json.dumps(content), encoding="utf-8")
    spec = json.loads(Path(info._run_dir, "spec.json").read_text(encoding="utf-8"))
    os.environ["DET_USER"] = spec.get("user") or "determined"
    os.environ["DET_RESOURCES_TYPE"] = "docker-container"
    os.execv(sys.executable, [sys.executable, "-m", "determined.exec.launch"])


def _leave(text: str) -> NoReturn:
    sys.exit(f"ERROR: trainmaster: {text}.")


if __name__ == "__main__":
    main()
