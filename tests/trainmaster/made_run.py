"""A run folder as the host part makes it, and programs that run as its ranks."""

import json
import os
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

from tests.rig.ports import free_port

ROOT = Path(__file__).resolve().parents[2]
SITE = ROOT / "trainmaster" / "compat"
SECRET = "5e" * 32


def make_run(folder: Path, *, slots: int = 1, member: int = 0, members: int = 1, **changes: Any) -> Path:
    """A run folder with `slots` CPU slots on each of `members` hosts, all of them this machine.

    `changes` replace fields of spec.json; `comm` and `c10d` choose ports.
    """
    for name in ("spool", "control", "code"):
        (folder / name).mkdir(parents=True, exist_ok=True)
    ports = {
        "c10d": changes.pop("c10d", None) or free_port(),
        "comm": changes.pop("comm", None) or free_port(),
    }
    trial = {
        "trial_id": 11, "experiment_id": 7, "trial_seed": 5, "hparams": {"lr": 0.1}, "run_id": 3,
        "config": {"searcher": {"name": "single", "metric": "loss", "max_length": {"batches": 40}}},
        "steps_completed": 0, "latest_checkpoint": None,
    }  # fmt: skip
    spec = {
        "protocol": 1, "run_key": f"7.t.1.{member}", "allocation_id": "7.t.1", "member": member, "members": members,
        "task_id": "7.t", "task_type": "TRIAL", "job_id": "j", "cluster": {"id": "c", "name": "test"},
        "host": {"id": f"h{member}", "name": f"gpu{member}"}, "token": "run-token", "unix_user": None,
        "python": None, "activate": None, "entrypoint": ["true"], "environment": {},
        "slots": [{"index": index, "uuid": f"cpu-{index}", "kind": "cpu"} for index in range(slots)],
        "gang": {"addresses": ["127.0.0.1"] * members, "slot_counts": [slots] * members, "ports": ports,
                 "interface": None, "secret": SECRET},
        "trial": trial, "user_data": {"k": 1}, "checkpoint_storage": {"type": "server"}, "limits": {},
    }  # fmt: skip
    spec.update(changes)
    (folder / "spec.json").write_text(json.dumps(spec))
    return folder


def environment_of(run: Path | None, **more: str) -> dict[str, str]:
    """The environment of a process in the run, or of one off the cluster."""
    cleaned = {
        name: value for name, value in os.environ.items() if not name.startswith(("TRAINMASTER_", "DET_"))
    }
    cleaned["PYTHONPATH"] = f"{SITE}{os.pathsep}{ROOT}"
    if run is not None:
        cleaned["TRAINMASTER_RUN_DIR"] = str(run)
    return {**cleaned, **more}


class Ranks:
    """One program as several ranks; `rank`, `size` and `det` are defined in it, `distributed` joins the others."""

    PRELUDE = """
import sys, os, time, json
import determined as det
rank, size, per_host = (int(part) for part in sys.argv[1:4])
def distributed():
    return det.core.DistributedContext(rank=rank, size=size, local_rank=rank % per_host, local_size=per_host,
        cross_rank=rank // per_host, cross_size=size // per_host, chief_ip="127.0.0.1")
def say(value):
    print(json.dumps(value), flush=True)
"""

    def __init__(self, program: str, runs: list[Path], size: int) -> None:
        code = self.PRELUDE + textwrap.dedent(program)
        per_host = size // len(runs)
        self.processes = [
            subprocess.Popen(
                [sys.executable, "-c", code, str(rank), str(size), str(per_host)],
                env=environment_of(runs[rank // per_host]),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
            )
            for rank in range(size)
        ]

    def __enter__(self) -> "Ranks":
        return self

    def __exit__(self, *exc: object) -> None:
        for process in self.processes:
            process.kill()
            process.communicate()

    def results(self, seconds: float = 60) -> list[tuple[int, list[Any], str]]:
        """(exit code, what it said, its stderr) of every rank, within `seconds`."""
        found = []
        for process in self.processes:
            out, err = process.communicate(timeout=seconds)
            found.append((process.returncode, [json.loads(line) for line in out.splitlines()], err))
        return found


def said(ranks: Ranks, seconds: float = 60) -> list[list[Any]]:
    """What each rank said, all of which must have ended well."""
    results = ranks.results(seconds)
    assert [code for code, _, _ in results] == [0] * len(results), "\n".join(err for _, _, err in results)
    return [values for _, values, _ in results]


def records(run: Path, rank: int = 0) -> list[dict[str, Any]]:
    path = run / "spool" / f"core.rank{rank}.jsonl"
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
