"""`all_reduce`: one of two ranks of a short gloo all-reduce, by the interpreter that jobs of this host get."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any, Dict, List

from trainmaster.paths import Workdir

_RANK = str(Path(__file__).with_name("all_reduce_rank.py"))
_SAID_BYTES = 300


def all_reduce(request: Dict[str, Any], workdir: Workdir) -> Dict[str, Any]:
    """{"state": "done", "mb_per_second"} or {"state", "message"}.

    Request: {"python", "activate", "rank", "address" and "port" of rank 0, "interface": ours, "seconds"}. States:
    `failed`: torch was ready and the ranks did not come together; `untried`: it did not come so far.
    """
    task = {key: request[key] for key in ("rank", "address", "port")}
    task["seconds"] = float(request["seconds"]) / 2  # for the ranks to meet; the rest is for the import
    try:
        done = subprocess.run(
            _command(request, json.dumps(task)),
            env=_environment(str(request.get("interface") or "")),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            timeout=float(request["seconds"]),
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        ready = b'"ready"' in (error.stdout or b"")
        message = f"it took longer than {float(request['seconds']):.0f} s"
        return {"state": "failed" if ready else "untried", "message": message}
    try:
        answer: Dict[str, Any] = json.loads(done.stdout.strip().splitlines()[-1])
    except (IndexError, ValueError):
        said = done.stderr.decode("utf-8", "replace").strip()[-_SAID_BYTES:]
        return {"state": "untried", "message": said or f"Python ended with {done.returncode}"}
    if answer.get("state") == "ready":
        answer = {"state": "failed", "message": f"Python ended with {done.returncode}"}
    return answer


def _command(request: Dict[str, Any], task: str) -> List[str]:
    if request.get("activate"):
        script = '. "$0" && exec python3 "$@"'
        return ["sh", "-c", script, str(request["activate"]), _RANK, task]
    return [str(request.get("python") or sys.executable), _RANK, task]


def _environment(interface: str) -> Dict[str, str]:
    """No GPU is touched, and one thread is enough: jobs may run here."""
    environment = {
        name: os.environ[name] for name in ("PATH", "HOME", "LANG", "TMPDIR") if name in os.environ
    }
    environment.update(CUDA_VISIBLE_DEVICES="", OMP_NUM_THREADS="1", PYTHONDONTWRITEBYTECODE="1")
    if interface:
        environment["GLOO_SOCKET_IFNAME"] = interface
    return environment
