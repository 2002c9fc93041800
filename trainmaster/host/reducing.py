"""`all_reduce`: one of two ranks of a short gloo all-reduce, by the interpreter that jobs of this host get."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any, Dict

from trainmaster.host.asking import by_the_jobs_python
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
        done = by_the_jobs_python(
            request,
            [_RANK, json.dumps(task)],
            _environment(str(request.get("interface") or "")),
            float(request["seconds"]),
            default=sys.executable,
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


def _environment(interface: str) -> Dict[str, str]:
    """No GPU is touched, and one thread is enough: jobs may run here."""
    environment = {"CUDA_VISIBLE_DEVICES": "", "OMP_NUM_THREADS": "1", "PYTHONDONTWRITEBYTECODE": "1"}
    return {**environment, "GLOO_SOCKET_IFNAME": interface} if interface else environment
