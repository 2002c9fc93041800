"""A node that Slurm has given waits for its run, starts it once, and carries out what it is asked."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterator
from typing import Any

import pytest

from tests.trainmaster.conftest import PYTHON, TestHost, code_archive, wait_until
from trainmaster.paths import RunPaths
from trainmaster.processes import marked
from trainmaster.protocol import KEEPER_MARKER
from trainmaster.runner.state import read_exit

SAVES = """
import pathlib, time, os
order = pathlib.Path(os.environ["TRAINMASTER_RUN_DIR"], "control", "preempt.json")
print("begun", flush=True)
while not order.exists():
    time.sleep(0.01)
"""


class Node:
    """What `srun` starts on one node, in job 7."""

    def __init__(self, host: TestHost) -> None:
        self.host = host
        self.spec = host.spec(["python3", "job.py"])
        host.keys.append(self.spec["run_key"])
        self.tasks: list[subprocess.Popen[bytes]] = []

    @property
    def paths(self) -> RunPaths:
        return self.host.workdir.run(self.spec["run_key"])

    def attend(self, job: str = "7", seconds: float = 60.0) -> subprocess.Popen[bytes]:
        program = self.host.bundle / "trainmaster/runner"
        words = [PYTHON, "-S", "-E", str(program), "attend", str(self.host.workdir.root)]
        environment = {**os.environ, "SLURM_JOB_ID": job, "SLURM_NODEID": "0"}
        task = subprocess.Popen([*words, self.spec["allocation_id"], f"{seconds:g}"], env=environment)
        self.tasks.append(task)
        return task

    def send(self, script: str, job: str = "7") -> dict[str, Any]:
        code = code_archive({"job.py": script})
        request = {"spec": self.spec, "server": self.host.server.address, "code_bytes": len(code)}
        return self.host.verb("launch", {**request, "ticket": {"job_id": job}}, code)

    def status(self) -> dict[str, Any]:
        key = self.paths.key
        answer: dict[str, Any] = self.host.verb("status", {"runs": [key], "elsewhere": [key]})["runs"][key]
        return answer


@pytest.fixture
def node(host: TestHost) -> Iterator[Node]:
    node = Node(host)
    host.verb("status", {"runs": []})
    yield node
    for task in node.tasks:
        task.kill()
        task.wait()


def test_a_run_that_comes_later_is_started_once_and_its_code_is_the_tasks(node: Node) -> None:
    task = node.attend()
    assert node.status()["state"] == "absent"
    assert node.send("print('hello'); raise SystemExit(3)") == {
        "run_key": node.paths.key,
        "state": "launched",
    }
    assert task.wait(60) == 3
    answer = node.status()
    assert (answer["state"], answer["exit"]["code"], answer["finished"]) == ("ended", 3, True)
    assert node.attend().wait(60) == 0, "a job that Slurm has requeued starts nothing twice"
    assert node.send("print('again')")["state"] == "launched"
    assert [line["m"] for line in node.host.server.lines()] == ["hello"]


def test_a_job_that_was_submitted_twice_runs_in_one_of_them(node: Node) -> None:
    double = node.attend("8")
    node.send("print('hello')")
    assert double.wait(60) == 0 and node.status()["state"] == "prepared"
    assert node.attend().wait(60) == 0 and read_exit(node.paths)


def test_a_node_is_given_back_if_nothing_comes_or_the_server_has_withdrawn(node: Node) -> None:
    assert node.attend(seconds=0.2).wait(60) == 0
    waiting = node.attend()
    revoked = node.host.verb("revoke", {"run_key": node.paths.key, "unix_user": None})
    assert revoked["state"] == "revoked" and waiting.wait(60) == 0


def test_the_script_of_the_job_asks_the_run_to_save(node: Node) -> None:
    task = node.attend()
    node.send(SAVES)
    wait_until(lambda: node.status()["state"] == "running")
    wait_until(lambda: "begun" in node.paths.launcher_stream("stdout").read_text())
    program = [PYTHON, "-S", "-E", str(node.host.bundle / "trainmaster/runner")]
    words = [str(node.host.workdir.root), node.spec["allocation_id"], "1"]
    subprocess.run([*program, "ask_to_save", *words], check=True)
    assert task.wait(60) == 0 and node.status()["preempt"]


@pytest.mark.parametrize("way", ["signal", "folder"])
def test_a_stop_ends_the_run_wherever_it_comes_from(node: Node, way: str) -> None:
    task = node.attend()
    node.send("import time; print('begun', flush=True); time.sleep(600)")
    wait_until(lambda: "begun" in node.paths.launcher_stream("stdout").read_text())
    if way == "signal":  # as Slurm does: to every process of the step
        for process in [*marked(KEEPER_MARKER)[node.paths.key], {"pid": task.pid}]:
            os.kill(process["pid"], signal.SIGTERM)
    else:
        order = {"grace_seconds": 5, "reason": "killed_by_user"}
        node.host.verb("stop", {"runs": {node.paths.key: order}, "elsewhere": True})
    assert task.wait(60) == 143
    ended = read_exit(node.paths)
    assert ended and ended["stopped"]
