"""The run folder of a detached run on one machine: made by its local chief, followed by its runner.

It lies in a folder of this user (`TRAINMASTER_DETACHED_DIR`, else below XDG_DATA_HOME) under a name that no other run
has, so any number of them go on side by side, on machines that share a home folder too.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import sys
import time
from pathlib import Path
from typing import Any, Dict, Iterator, List, NamedTuple, Optional, Sequence

from trainmaster.core._storage_choice import own_folder
from trainmaster.experimental.core_v2._attempt import Attempt
from trainmaster.jsonfile import read_json, write_json
from trainmaster.paths import RunPaths
from trainmaster.processes import boot_id
from trainmaster.protocol import DEFAULT_LIMITS, PROTOCOL, ProcessRef, Slot, run_key
from trainmaster.runner.detached import spawn_in_session
from trainmaster.runner.detached_ranks import GIVE_UP_SECONDS
from trainmaster.runner.state import read_shipped, try_lock, update_state

_KEPT_SECONDS = 24 * 3600.0  # of a run of which nothing is left to be sent


class LocalRank(NamedTuple):
    """One rank here: its number in the gang, its process, and the GPUs that it may see (CUDA_VISIBLE_DEVICES)."""

    rank: int
    process: Optional[ProcessRef]
    visible: Optional[str]


def machine_name() -> str:
    return socket.gethostname()


def detached_folder() -> Path:
    """Where this user's detached runs lie."""
    named = os.environ.get("TRAINMASTER_DETACHED_DIR")
    return Path(named).expanduser() if named else own_folder("detached")


def make_folder(
    attempt: Attempt, member: int, ranks: Sequence[LocalRank], slot_counts: List[int]
) -> RunPaths:
    """The folder of this machine's member. OSError when it cannot be made."""
    root = detached_folder() / run_key(attempt.run["allocationId"], member)
    paths = RunPaths(root)
    root.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    root.mkdir(mode=0o700)
    for folder in (paths.spool, paths.control, paths.checkpoints):
        folder.mkdir(mode=0o700)
    write_json(paths.spec, _spec(attempt, member, ranks, slot_counts))
    write_json(paths.server, attempt.server)
    update_state(paths, {"host_id": machine_name(), "boot_id": boot_id()})
    processes = {str(rank.rank): rank.process for rank in ranks}
    write_json(paths.ranks, {"boot_id": boot_id(), "ranks": processes})
    return paths


def take_care_of_others(own: RunPaths) -> None:
    """Start runners for earlier runs that still have something to send, and remove those that have not any more.

    A runner may have ended with the machine, or with the session that the run was started from.
    """
    for paths in _others(own):
        with contextlib.suppress(OSError, ValueError):
            shipped = read_shipped(paths)
            last = paths.outbox if paths.outbox.exists() else paths.ranks
            age = time.time() - last.stat().st_mtime
            if shipped["finished"]:
                if age > _KEPT_SECONDS and not any(paths.root.glob("tensorboard*/*")):
                    shutil.rmtree(paths.root, ignore_errors=True)
            elif age < GIVE_UP_SECONDS and has_no_runner(paths):
                spawn_in_session("detached", paths)


def _others(own: RunPaths) -> Iterator[RunPaths]:
    """This machine's runs: another one's, in a home folder that they share, have their runners there."""
    for root in sorted(own.root.parent.iterdir()):
        paths = RunPaths(root)
        if root != own.root and paths.ranks.is_file():
            with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
                if (read_json(paths.spec) or {})["host"]["id"] == machine_name():
                    yield paths


def has_no_runner(paths: RunPaths) -> bool:
    """Whether no runner follows this run now."""
    lock = try_lock(paths.runner_lock)
    if lock is not None:
        os.close(lock)
    return lock is not None


def _spec(
    attempt: Attempt, member: int, ranks: Sequence[LocalRank], slot_counts: List[int]
) -> Dict[str, Any]:
    """spec.json; what a launcher would need is empty."""
    run = attempt.run
    config = run.get("config") or {}
    return {
        "protocol": PROTOCOL,
        "run_key": run_key(run["allocationId"], member),
        "allocation_id": run["allocationId"],
        "member": member,
        "members": run["members"],
        "task_id": run["taskId"],
        "task_type": "TRIAL",
        "job_id": run["jobId"],
        "cluster": run["cluster"],
        "host": {"id": machine_name(), "name": machine_name()},
        "token": run["token"],
        "unix_user": None,
        "user": None,
        "python": None,
        "activate": None,
        "entrypoint": [Path("".join(sys.argv[:1])).name or "python"],
        "environment": {},
        "slots": _slots(ranks),
        "gang": {
            "addresses": run.get("hosts") or [machine_name()],
            "slot_counts": slot_counts,
            "ports": {},
            "interface": None,
            "secret": "",
        },
        "trial": {
            "trial_id": run["trialId"],
            "experiment_id": run["experimentId"],
            "trial_seed": run.get("trialSeed") or 0,
            "hparams": run.get("hparams") or {},
            "config": config,
            "run_id": run["runId"],
            "steps_completed": attempt.steps_completed,
            "latest_checkpoint": attempt.latest_checkpoint,
        },
        "user_data": config.get("data") or {},
        "checkpoint_storage": run.get("checkpointStorage") or {"type": "server"},
        "limits": {**DEFAULT_LIMITS, **(run.get("limits") or {})},
    }


def _slots(ranks: Sequence[LocalRank]) -> List[Slot]:
    """The GPUs that the ranks here may use, to be measured; without any, one slot for each rank."""
    from trainmaster.host.nvidia import find_gpus

    seen = {rank.visible for rank in ranks}
    gpus, _ = find_gpus()
    if None in seen:
        used = gpus
    else:
        named = {name.strip() for visible in seen for name in (visible or "").split(",") if name.strip()}
        used = [gpu for gpu in gpus if str(gpu["index"]) in named or gpu["uuid"] in named]
    if used:
        return [{"index": gpu["index"], "uuid": gpu["uuid"], "kind": "cuda"} for gpu in used]
    return [{"index": at, "uuid": f"cpu-{at}", "kind": "cpu"} for at in range(len(ranks))]
