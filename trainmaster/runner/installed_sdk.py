"""The entrypoint of trials with `environment: {sdk: installed}`: the host's own package `determined`, as it is.

That package reads /run/determined, one folder for the whole machine, and many runs share a host. So this process gives
itself a mount namespace in which /run is its own, writes there what the package expects, and becomes
`determined.exec.launch`, which starts the entrypoint of the config. Nothing is seen of it, or left, outside.
"""

from __future__ import annotations

import contextlib
import ctypes
import importlib.machinery
import json
import os
import stat
import sys
from pathlib import Path
from typing import Any, Dict, List, NoReturn

from trainmaster._info import ClusterInfo, get_cluster_info

INFO = Path("/run/determined/info")
_RUN = "/run"
_CLONE_NEWNS, _CLONE_NEWUSER = 0x00020000, 0x10000000
_MS_NOSUID, _MS_NODEV, _MS_BIND, _MS_REC, _MS_PRIVATE = 2, 4, 4096, 16384, 1 << 18
_PRIVATE_BYTES = "size=16m,mode=0755"
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


def own_run_folder() -> None:
    """From here on /run is this process's and its children's own, with what it had. OSError where that is refused."""
    account, group = os.geteuid(), os.getegid()
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.unshare(_CLONE_NEWNS) != 0:  # without privileges for the machine, those in a user namespace do
        _checked(libc.unshare(_CLONE_NEWNS | _CLONE_NEWUSER))
        Path("/proc/self/setgroups").write_text("deny")
        Path("/proc/self/uid_map").write_text(f"{account} {account} 1")
        Path("/proc/self/gid_map").write_text(f"{group} {group} 1")
    _mount(libc, "none", "/", "", _MS_REC | _MS_PRIVATE)
    before = os.open(_RUN, os.O_RDONLY | os.O_DIRECTORY)
    _mount(libc, "tmpfs", _RUN, "tmpfs", _MS_NOSUID | _MS_NODEV, _PRIVATE_BYTES)
    for name in os.listdir(before):  # noqa: PTH208  (a descriptor)
        if name != "determined":
            with contextlib.suppress(OSError):  # such as what another account's folder hides
                _keep(libc, f"/proc/self/fd/{before}/{name}", Path(_RUN, name))
    os.close(before)


def _keep(libc: Any, source: str, target: Path) -> None:
    mode = os.lstat(source).st_mode
    if stat.S_ISLNK(mode):
        target.symlink_to(os.readlink(source))  # noqa: PTH115
        return
    if stat.S_ISDIR(mode):
        target.mkdir()
    else:
        target.touch()
    _mount(libc, source, str(target), "", _MS_BIND | _MS_REC)


def _mount(libc: Any, source: str, target: str, kind: str, flags: int, options: str = "") -> None:
    words: List[bytes] = [text.encode() for text in (source, target, kind, options)]
    _checked(libc.mount(words[0], words[1], words[2], ctypes.c_ulong(flags), words[3]))


def _checked(result: int) -> None:
    if result != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))


def main() -> None:
    """Does not return; SystemExit with a sentence where the package cannot run."""
    info = get_cluster_info()
    if info is None:
        raise RuntimeError("This is the entrypoint of a run, but there is no run.")
    if importlib.machinery.PathFinder.find_spec("determined") is None:
        _leave(_MISSING.format(sys.executable))
    try:
        own_run_folder()
    except OSError as error:
        _leave(_REFUSED.format(error.strerror))
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
