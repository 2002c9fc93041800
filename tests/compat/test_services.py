"""JupyterLab and TensorBoard, as tasks on a host of this machine, through the server's proxy."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from websockets.sync.client import connect

from tests.rig import parts
from tests.rig.server import Server
from tests.rig.stack import Stack, local_host

pytestmark = pytest.mark.compat

LIMIT_SECONDS = 120


@pytest.fixture(scope="module")
def stack() -> Iterator[Stack]:
    with parts.private_folder("services") as path:
        path.chmod(0o711)
        server = Server(path / "data")
        try:
            with local_host(server.start(), "services", slots=1) as stack:
                yield stack
                for plural in ("notebooks", "tensorboards"):
                    for each in stack.get(f"/api/v1/{plural}")[plural]:
                        stack.post(f"/api/v1/{plural}/{each['id']}/kill")
        finally:
            server.close()


def started(stack: Stack, plural: str, python: str, **more: Any) -> tuple[str, httpx.Client]:
    """The path of a new one that is ready, and a client that is logged in."""
    config = {"environment": {"python": python}, "resources": {"slots": 0}}
    noun = plural[:-1]
    made = stack.post(f"/api/v1/{plural}", {"config": config, **more})[noun]
    at = f"/api/v1/{plural}/{made['id']}"
    stack.wait(lambda: bool(stack.get(at)[noun]["ready"]), LIMIT_SECONDS, f"the {noun}")
    login = {"Authorization": f"Bearer {stack.token}"}
    return made["serviceAddress"], httpx.Client(base_url=stack.server.url, headers=login, timeout=60)


def test_a_kernel_of_a_notebook_computes(stack: Stack, services_python: str) -> None:
    base, client = started(stack, "notebooks", services_python)
    with client:
        assert "JupyterLab" in client.get(f"{base}lab").text
        assert re.search(r"Jupyter Server .* is running", log_of(stack, base))
        token = client.cookies["_xsrf"]
        kernel = client.post(
            f"{base}api/kernels", json={"name": "python3"}, headers={"X-XSRFToken": token}
        ).json()
        url = f"{stack.server.url.replace('http', 'ws', 1)}{base}api/kernels/{kernel['id']}/channels"
        header = {
            "msg_id": "1",
            "msg_type": "execute_request",
            "session": "s",
            "username": "",
            "version": "5.3",
        }
        request = {"header": header, "parent_header": {}, "metadata": {}, "channel": "shell",
                   "content": {"code": "print(6 * 7)", "silent": False}}  # fmt: skip
        with connect(url, additional_headers={"Authorization": f"Bearer {stack.token}"}) as channels:
            channels.send(json.dumps(request))
            said = ""
            while "42" not in said:
                frame = json.loads(channels.recv(LIMIT_SECONDS))
                said += str(frame["content"].get("text", ""))


def test_a_tensorboard_shows_what_a_trial_has_reported(stack: Stack, services_python: str) -> None:
    code = (
        "from trainmaster import core\n"
        "with core.init() as context:\n"
        "    for step in range(1, 11):\n"
        "        context.train.report_training_metrics(step, {'loss': 1 / step})\n"
    )
    config = {"name": "curve", "entrypoint": "python3 train.py", "hyperparameters": {}, "max_restarts": 0,
              "searcher": {"name": "single", "metric": "loss", "max_length": {"batches": 10}},
              "resources": {"slots_per_trial": 1}}  # fmt: skip
    experiment_id = stack.submit({"train.py": code}, json.dumps(config))
    assert stack.wait_end(experiment_id, LIMIT_SECONDS) == "STATE_COMPLETED"
    trial_id = stack.trial(experiment_id)["id"]
    base, client = started(stack, "tensorboards", services_python, experimentIds=[experiment_id])
    with client:
        query = {"tag": "loss", "run": f"trial-{trial_id}/training"}

        def points() -> list[Any]:
            answer = client.get(f"{base}data/plugin/scalars/scalars", params=query)
            return list(answer.json()) if answer.status_code == 200 else []

        stack.wait(lambda: len(points()) == 10, LIMIT_SECONDS, "ten points")
        assert [step for _, step, _ in points()] == list(range(1, 11))
        assert re.search(r"TensorBoard \S+ at /proxy/", log_of(stack, base))


def log_of(stack: Stack, base: str) -> str:
    """What the program behind a path has printed."""
    task = base.strip("/").split("/")[1]
    return "\n".join(record["log"] for record in stack.task_records(task, "sources=task"))
