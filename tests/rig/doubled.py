"""The Celery application of chaos runs: the real one, but each message is sent twice and hosts are a folder.

What stands in is the host alone: `dispatch.ssh.remote.verb` answers from CHAOS_HOSTS instead of by SSH. A launch makes
the run's folder there, as a host's rename does, and the run has ended by the next status. All else is real.
"""

import json
import os
import time
from pathlib import Path
from typing import Any

from celery import signals

from webui.celery import app as app

RUNS = Path(os.environ["CHAOS_HOSTS"])
#: a killed worker's claim of a launch holds so long here (2 minutes elsewhere)
CLAIM_SECONDS = 10.0


@signals.after_task_publish.connect
def _again(
    headers: dict[str, Any], body: tuple[Any, Any, Any], exchange: str, routing_key: str, **_: Any
) -> None:
    if "doubled" not in headers:
        args, kwargs, _embed = body
        app.send_task(headers["task"], args, kwargs, headers={"doubled": True}, retry=False)


@signals.worker_init.connect
def _stand_in(**_: Any) -> None:
    from dispatch.runs import launch
    from dispatch.ssh import remote

    launch.CLAIM_SECONDS = CLAIM_SECONDS
    remote.verb = _verb


@signals.worker_ready.connect
def _ready(**_: Any) -> None:
    (RUNS.parent / f"ready-{os.getpid()}").touch()


def _verb(host: Any, name: str, payload: dict[str, Any], **_: Any) -> dict[str, Any]:
    from hosts import observe

    observe.seen(host.pk, boot_id="boot")
    answer: dict[str, Any] = {"boot_id": "boot", "now": time.time()}
    if name == "launch":
        key = payload["spec"]["run_key"]
        try:
            (RUNS / key).mkdir()
        except FileExistsError:
            return {**answer, "run_key": key, "state": "already"}
        slots = sorted(slot["uuid"] for slot in payload["spec"]["slots"])
        (RUNS / key / "run.json").write_text(json.dumps({"host": host.name, "slots": slots}))
        return {**answer, "run_key": key, "state": "launched"}
    return {**answer, "runs": {key: _status(key) for key in payload["runs"]}}


def _status(key: str) -> dict[str, Any]:
    if not (RUNS / key).exists():
        return {"state": "absent"}
    ended = {"code": 0, "signal": None, "ended_at": time.time(), "stopped": False}
    return {"state": "ended", "exit": ended, "finished": True, "unshipped_bytes": 0, "boot_id": "boot"}
