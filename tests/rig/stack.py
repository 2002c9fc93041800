"""The whole product with its hosts: submit through REST, watch, and prove what is left when it is over."""

from __future__ import annotations

import base64
import json
import re
import time
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.cookiejar import CookieJar
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.parse import urlencode

from tests.rig import lending, parts
from tests.rig.hosts import Host, HostRig, processes_with_marker
from tests.rig.pace import wait_until
from tests.rig.server import Server

Json = dict[str, Any]
END_STATES = {"STATE_COMPLETED", "STATE_ERROR", "STATE_CANCELED"}

#: Starts a worker per slot, as a user's own launcher does; the first failure ends the others.
LAUNCHER = """
import subprocess, sys, threading
import determined as det

info = det.get_cluster_info()
slots = len(info.slot_ids)
procs = []
for local in range(slots):
    rank = info.container_rank * slots + local
    command = [sys.executable, "-m", "determined.launch.wrap_rank", str(rank), sys.executable, "worker.py", str(rank)]
    procs.append(subprocess.Popen(command))
failed = []
def wait(proc):
    code = proc.wait()
    if code and not failed:
        failed.append(code)
        for other in procs:
            other.terminate()
threads = [threading.Thread(target=wait, args=(proc,)) for proc in procs]
for thread in threads: thread.start()
for thread in threads: thread.join()
sys.exit(failed[0] if failed else 0)
"""

#: Each rank counts from 1 to its last line.
COUNTER = """
import sys, time
for number in range(1, {last} + 1):
    print(f"line {{number}}", flush=True)
    time.sleep({pause})
"""


def counting(last: int, pause: float) -> dict[str, str]:
    """Code whose ranks print `line 1` to `line <last>`, `pause` seconds apart."""
    return {"launch.py": LAUNCHER, "worker.py": COUNTER.format(last=last, pause=pause)}


#: Each rank counts to the middle, and on from there once it is told to.
HALTER = """
import pathlib, time
for number in range(1, {last} + 1):
    while number > {last} // 2 and not pathlib.Path("go").exists():
        time.sleep(0.05)
    print(f"line {{number}}", flush=True)
"""


def halting(last: int) -> dict[str, str]:
    """Code whose ranks print `line 1` to `line <last>`, the second half of them after Stack.go_on."""
    return {"launch.py": LAUNCHER, "worker.py": HALTER.format(last=last)}


def config(slots: int, entrypoint: str = "python3 launch.py", **more: Any) -> str:
    """An experiment config as JSON, which is YAML."""
    return json.dumps(
        {
            "name": "rig",
            "entrypoint": entrypoint,
            "hyperparameters": {},
            "searcher": {"name": "single", "metric": "loss", "max_length": {"batches": 1}},
            "resources": {"slots_per_trial": slots},
            "max_restarts": 0,
            **more,
        }
    )


@dataclass
class Stack:
    """A running server and the hosts that it knows."""

    server: Server
    hosts: list[Host]
    token: str = field(init=False)

    def __post_init__(self) -> None:
        self.token = self.server.token()

    def get(self, path: str) -> Json:
        return dict(self.server.request("GET", path, token=self.token))

    def post(self, path: str, body: Any = None) -> Json:
        return dict(self.server.request("POST", path, body, token=self.token) or {})

    def refused(self, method: str, path: str, body: Any = None, token: str | None = None) -> tuple[int, str]:
        """Status and text of an answer that must be an error."""
        try:
            answer = self.server.request(method, path, body, token=self.token if token is None else token)
        except HTTPError as error:
            return error.code, str(error.msg)
        raise AssertionError(f"{method} {path} was not refused: {str(answer)[:500]}")

    def add_hosts(self, slots: int = 2, python: str = "", **more: Any) -> None:
        """Add every host, accept its key, and wait until it is ready."""
        key = self.get("/api/v1/hosts/server-key")["publicKey"]
        for host in self.hosts:
            host.authorize(key)
            body = {"name": host.name, "transport": "ssh", "address": host.address, "port": host.port}
            body["allowLoginAccount"] = True  # the rig's logins may be root
            self.post(
                "/api/v1/hosts", {**body, "user": host.logins[0], "slots": slots, "python": python, **more}
            )
        for host in self.hosts:
            self.wait(lambda host=host: self._admitted(host), 180, f"{host.name} to be ready")

    def _admitted(self, host: Host) -> bool:
        seen = self.get(f"/api/v1/hosts/{host.name}")["host"]
        offered = seen["hostKey"].get("offered")
        if seen["state"] == "admitting" and offered:
            self.post(f"/api/v1/hosts/{host.name}/accept-key", {"fingerprint": offered})
        assert seen["state"] != "failed", seen["stateReason"]
        return bool(seen["state"] == "ready")

    def submit(self, files: dict[str, str], config_text: str, once: str = "") -> int:
        """The id of the new experiment; with a key `once`, of the one that was first submitted with it."""
        definition = [
            {"path": name, "type": 48, "content": base64.b64encode(text.encode()).decode(), "mtime": "0",
             "mode": 0o644, "uid": 0, "gid": 0}
            for name, text in files.items()
        ]  # fmt: skip
        body = {"config": config_text, "modelDefinition": definition, "activate": True}
        made = self.server.request("POST", "/api/v1/experiments", body, self.token, once)
        return int(made["experiment"]["id"])

    def experiment(self, experiment_id: int) -> Json:
        return dict(self.get(f"/api/v1/experiments/{experiment_id}")["experiment"])

    def trial(self, experiment_id: int) -> Json:
        return dict(self.get(f"/api/v1/experiments/{experiment_id}/trials")["trials"][0])

    def wait_end(self, experiment_id: int, limit_seconds: float = 240) -> str:
        """The end state."""
        self.wait(
            lambda: self._state(experiment_id) in END_STATES,
            limit_seconds,
            f"experiment {experiment_id} to end",
        )
        return str(self.experiment(experiment_id)["state"])

    def _state(self, experiment_id: int) -> str:
        try:
            return str(self.experiment(experiment_id)["state"])
        except OSError:  # a part was just killed: not an answer
            return ""

    def wait_lines(self, experiment_id: int, count: int, limit_seconds: float = 180) -> None:
        """Until at least `count` lines of ranks are stored."""
        self.wait(
            lambda: sum(len(lines) for lines in self.lines_by_rank(experiment_id).values()) >= count,
            limit_seconds,
            f"{count} lines",
        )

    def lines_by_rank(self, experiment_id: int) -> dict[int, list[str]]:
        """Rank -> its stored lines in their order, read through REST."""
        try:
            trial = self.trial(experiment_id)
        except (OSError, IndexError):
            return {}
        return {
            rank: [record["log"] for record in self.records(trial["id"], f"rankIds={rank}")]
            for rank in range(4)
        }

    def records(self, trial_id: int, query: str = "") -> list[Json]:
        return self._records(f"trials/{trial_id}", query)

    def task_records(self, task_id: str, query: str = "") -> list[Json]:
        """The lines of a task that is no trial."""
        return self._records(f"tasks/{task_id}", query)

    def _records(self, whose: str, query: str) -> list[Json]:
        request = urllib.request.Request(
            f"{self.server.url}/api/v1/{whose}/logs?limit=0&{query}",
            headers={"Authorization": f"Bearer {self.token}"},
        )
        with urllib.request.urlopen(request, timeout=60) as answer:
            return [json.loads(line)["result"] for line in answer.read().splitlines() if line]

    def follow_until(self, experiment_id: int, beginning: str, limit_seconds: float) -> tuple[str, float]:
        """The first line that begins so, and the time at which it was read from the followed log."""
        trial_id = self.trial(experiment_id)["id"]
        request = urllib.request.Request(
            f"{self.server.url}/api/v1/trials/{trial_id}/logs?follow=true",
            headers={"Authorization": f"Bearer {self.token}"},
        )
        with urllib.request.urlopen(request, timeout=limit_seconds) as answer:
            for raw in answer:
                text = json.loads(raw).get("result", {}).get("log", "")
                if text.startswith(beginning):
                    return text, time.time()
        raise AssertionError(f"the log ended without a line that begins with {beginning!r}")

    def run_keys(self, experiment_id: int) -> list[str]:
        """Run keys of the newest attempt of the experiment's trial."""
        task_id = self.trial(experiment_id)["taskId"]
        task = self.get(f"/api/v1/tasks/{task_id}")["task"]
        newest = max(
            task["allocations"], key=lambda allocation: int(allocation["allocationId"].rsplit(".", 1)[1])
        )
        return [f"{newest['allocationId']}.{index}" for index in range(len(self.hosts))]

    def go_on(self, run_keys: list[str]) -> None:
        """Let ranks that have halted go on, on each host that has a folder of these runs, and on one at least."""

        def told() -> bool:
            folders = [host.workdir / "runs" / key / "code" for host in self.hosts for key in run_keys]
            there = [folder for folder in folders if folder.is_dir()]
            for folder in there:
                (folder / "go").touch()
            return bool(there)

        self.wait(told, 120, "the folder of a run")

    def wait(self, condition: Any, limit_seconds: float, what: str) -> None:
        assert wait_until(condition, limit_seconds), f"waited {limit_seconds} s for {what}"

    def host_state(self, name: str) -> str:
        return str(self.get(f"/api/v1/hosts/{name}")["host"]["state"])

    def holders(self) -> dict[str, str]:
        """`<host>/<slot>` -> the task that holds the slot, of all held slots of all hosts."""
        hosts = self.get("/api/v1/hosts")["hosts"]
        return {
            f"{host['name']}/{slot['index']}": slot["heldBy"]["taskId"]
            for host in hosts
            for slot in host["slots"]
            if slot["heldBy"]
        }

    def assert_nothing_runs(self, run_keys: list[str]) -> None:
        """No process of these runs stays on any host."""
        wait_until(lambda: not any(map(processes_with_marker, run_keys)), 60)
        left = {key: processes_with_marker(key) for key in run_keys}
        assert not any(left.values()), f"processes are left: {left}"

    def wait_free(self) -> None:
        """Until no slot is held."""
        self.wait(lambda: not self.holders(), 120, "all slots to be free")

    def assert_complete(self, experiment_id: int, last: int, ranks: int = 4) -> None:
        """Every rank's lines are stored once, in order, from 1 to the last."""
        found = self.lines_by_rank(experiment_id)
        expected = [f"line {number}" for number in range(1, last + 1)]
        for rank in range(ranks):
            assert found[rank] == expected, f"rank {rank}: {len(found[rank])} lines, {found[rank][-3:]} last"


class Pages:
    """The console as a person sees it who has logged in by the form."""

    def __init__(self, server: Server, user: str = "admin") -> None:
        self.url = server.url
        self.opener = urllib.request.build_opener(urllib.request.HTTPCookieProcessor(CookieJar()))
        self.press("/login", "/login", username=user, password=server.password)

    def text(self, path: str) -> str:
        """The page without its tags."""
        return re.sub(r"\s+", " ", re.sub(r"<[^>]+>", " ", self._html(path)))

    def press(self, page: str, action: str, **fields: str) -> None:
        """Send a form of the page to `action`."""
        token = re.search(r'name="csrfmiddlewaretoken" value="([^"]+)"', self._html(page))
        assert token, f"{page} has no form"
        data = urlencode({"csrfmiddlewaretoken": token[1], **fields}).encode()
        self.opener.open(self.url + action, data, timeout=60).close()

    def _html(self, path: str) -> str:
        with self.opener.open(self.url + path, timeout=60) as answer:
            return str(answer.read().decode())


@contextmanager
def running_stack(rig: HostRig, hosts: int = 2, settings: Mapping[str, str] | None = None) -> Iterator[Stack]:
    """A server on the hosts' bridge, its own where it has settings, with hosts as new that it does not know yet."""
    if settings is None:
        with lending.borrowed(rig.server_address) as server:
            yield Stack(server, rig.take(hosts))
        return
    with parts.private_folder("server") as path:
        path.chmod(0o711)
        server = Server(path / "data", rig.server_address, settings)
        try:
            yield Stack(server.start(), rig.take(hosts))
        finally:
            server.close()


@contextmanager
def local_host(server: Server, name: str, **about: Any) -> Iterator[Stack]:
    """A server that others use too, and this machine as its only host, without sshd; afterwards nothing runs there."""
    stack = Stack(server, [])
    stack.post("/api/v1/hosts", {"name": name, "transport": "local", "allowLoginAccount": True, **about})
    stack.wait(lambda: stack.host_state(name) == "ready", 60, "the host to be ready")
    yield stack
    found = stack.get("/api/v1/experiments?limit=0")["experiments"]
    # the newest first: they wait for what the others would free
    for number in sorted((each["id"] for each in found if not each["unmanaged"]), reverse=True):
        stack.post(f"/api/v1/experiments/{number}/kill")
    stack.wait(lambda: not stack.get("/api/v1/tasks")["allocationIdToSummary"], 180, "the runs to end")
    server.request("DELETE", f"/api/v1/hosts/{name}", token=stack.token)


def code_of(folder: Path) -> dict[str, str]:
    """The text files of an example."""
    return {path.name: path.read_text() for path in folder.iterdir() if path.is_file()}
