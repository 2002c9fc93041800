"""Submits small gangs to a real server and tells what became of them. The ranks are plain processes, no torch."""

import textwrap
from collections import defaultdict
from pathlib import Path
from typing import Any

from tests.rig.hosts import Host, processes_with_marker
from tests.rig.server import Server
from trainmaster import context
from trainmaster.client import Client
from webui.embedded import processes

ADMISSION_LIMIT_SECONDS = 60.0
END_LIMIT_SECONDS = 120.0
END_STATES = {"COMPLETED", "CANCELED", "ERROR"}

LAUNCHER = """
    import subprocess, sys
    import determined as det

    info = det.get_cluster_info()
    slots = len(info.slot_ids)
    ranks = range(info.container_rank * slots, (info.container_rank + 1) * slots)
    wrap = [sys.executable, "-m", "determined.launch.wrap_rank"]
    workers = [subprocess.Popen([*wrap, str(rank), sys.executable, *sys.argv[1:], str(rank)]) for rank in ranks]
    sys.exit(max(worker.wait() for worker in workers))
"""

COUNT = """
    import sys, time

    lines, seconds = int(sys.argv[1]), float(sys.argv[2])
    for number in range(1, lines + 1):
        print(f"line {number}", flush=True)
        time.sleep(seconds / lines)
"""


class Cluster:
    """A server with two SSH hosts of two slots each, and what tests ask of it."""

    def __init__(self, server: Server, hosts: list[Host]) -> None:
        self.server = server
        self.hosts = hosts
        self.client = Client(server.url, token=server.token())

    def add_hosts(self, slots: int = 2) -> None:
        key = self.client.server_key()
        for host in self.hosts:
            for login in host.logins:
                host.authorize(key, login)
            where = {
                "address": host.address,
                "port": host.port,
                "user": host.logins[0],
                "hostKey": host.host_key,
            }
            self.client.add_host({"name": host.name, "transport": "ssh", "slots": slots, **where})
        assert processes.wait_until(self._all_ready, ADMISSION_LIMIT_SECONDS), [
            (host["name"], host["state"], host["stateReason"]) for host in self.client.hosts()
        ]

    def _all_ready(self) -> bool:
        return all(host["state"] == "ready" and host["slots"] for host in self.client.hosts())

    def submit(
        self, folder: Path, entrypoint: str, slots: int = 4, files: dict[str, str] | None = None
    ) -> "Run":
        """Submit an experiment of one trial whose code is the given files."""
        folder.mkdir(parents=True, exist_ok=True)
        for name, text in (files or {"launcher.py": LAUNCHER, "count.py": COUNT}).items():
            (folder / name).write_text(textwrap.dedent(text))
        config = "\n".join(
            [
                f"name: {folder.name}",
                f"entrypoint: {entrypoint}",
                f"resources: {{slots_per_trial: {slots}}}",
                "searcher: {name: single, metric: loss, max_length: {batches: 1}}",
                "max_restarts: 0",
            ]
        )
        request = {
            "config": config,
            "modelDefinition": context.encode(context.survey(folder)),
            "activate": True,
        }
        return Run(self.client, int(self.client.create_experiment(request)["experiment"]["id"]))

    def count(self, folder: Path, lines: int, seconds: float) -> "Run":
        """A gang of four ranks on two hosts, each of which prints `line 1` to `line N` within the seconds."""
        return self.submit(folder, f"python3 launcher.py count.py {lines} {seconds}")


class Run:
    """One experiment with one trial."""

    def __init__(self, client: Client, experiment: int) -> None:
        self.client = client
        self.experiment = experiment

    def state(self) -> str:
        return str(self.client.experiment(self.experiment)["experiment"]["state"]).removeprefix("STATE_")

    def trial(self) -> dict[str, Any]:
        return self.client.trial(int(self.client.trials_of(self.experiment)[0]["id"]))

    def ended(self) -> bool:
        return self.state() in END_STATES

    def wait_ended(self, limit_seconds: float = END_LIMIT_SECONDS) -> str:
        assert processes.wait_until(self.ended, limit_seconds), (
            f"still {self.state()} after {limit_seconds} s"
        )
        return self.state()

    def lines(self) -> dict[int, list[str]]:
        """What each rank printed, in stored order."""
        found: dict[int, list[str]] = defaultdict(list)
        for record in self.client.lines(f"/api/v1/trials/{self.trial()['id']}/logs"):
            if record.get("rankId") is not None and record.get("source") == "task":
                found[int(record["rankId"])].append(record["log"])
        return dict(found)

    def wait_line(self, text: str, limit_seconds: float = 60.0) -> None:
        """Wait until some rank's line with the text is stored."""

        def stored() -> bool:
            return any(text in lines for lines in self.lines().values())

        assert processes.wait_until(stored, limit_seconds), (
            f"no {text!r} within {limit_seconds} s: {self.log()}"
        )

    def log(self) -> str:
        """The end of the whole log, for messages."""
        records = self.client.lines(f"/api/v1/trials/{self.trial()['id']}/logs")
        return "\n".join(str(record["log"]) for record in records)[-3000:]

    def task_id(self) -> str:
        trial = self.trial()
        return str(trial.get("taskId") or trial["taskIds"][0])

    def marked(self) -> list[int]:
        """Processes of this run that live on any host."""
        keys = [f"{self.task_id()}.{attempt}.{member}" for attempt in range(1, 9) for member in range(2)]
        return [pid for key in keys for pid in processes_with_marker(key)]


def expected(lines: int, ranks: int = 4) -> dict[int, list[str]]:
    return {rank: [f"line {number}" for number in range(1, lines + 1)] for rank in range(ranks)}
