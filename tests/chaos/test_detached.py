"""Detached runs through outages: the server away in the middle and at the end, a runner and a rank that are killed."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.rig.pace import wait_until
from tests.rig.ports import free_port
from tests.rig.server import ROOT, Server
from tests.rig.stack import Stack
from trainmaster.http import ServerClient

pytestmark = pytest.mark.chaos

LIMIT_SECONDS = 240
RANKS = 2
#: Both ranks step at the same time until they are told to end; no server sees what they say of it.
PROGRAM = """
import json, pathlib, sys, time
from trainmaster.experimental import core_v2

told = pathlib.Path(sys.argv[1])
distributed = core_v2.DistributedContext.from_torch_distributed()
core_v2.init(config=core_v2.Config(name=sys.argv[2]), distributed=distributed)
rank, step, longest, before, saved = distributed.rank, 0, 0.0, time.monotonic(), []
while True:
    print("line", step, flush=True)
    core_v2.train.report_metrics(f"rank{rank}", step, {"x": step})
    last = distributed.broadcast((told / "end").exists())
    if step % 20 == 0 or last:
        with core_v2.checkpoint.store_path({"steps_completed": step, f"r{rank}": "ok"}, shard=True) as (path, uuid):
            (path / f"shard{rank}").write_text(str(step))
        saved.append(uuid)
    time.sleep(0.1)
    longest, before = max(longest, time.monotonic() - before), time.monotonic()
    (told / f"new{rank}").write_text(json.dumps({"steps": step + 1, "longest": longest, "saved": saved}))
    (told / f"new{rank}").rename(told / f"rank{rank}")
    step += 1
    if last:
        break
"""


class Gang:
    """Two ranks of a program on this machine, as torchrun starts them."""

    def __init__(self, folder: Path, stack: Stack, name: str) -> None:
        self.folder = folder
        (folder / "train.py").write_text(PROGRAM)
        kept = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith(("TRAINMASTER_", "DET_", "XDG_"))
        }
        common = {
            **kept, "HOME": str(folder), "PYTHONPATH": str(ROOT), "DET_MASTER": stack.server.url,
            "DET_USER_TOKEN": stack.token, "WORLD_SIZE": str(RANKS), "LOCAL_WORLD_SIZE": str(RANKS),
            "GROUP_RANK": "0", "GROUP_WORLD_SIZE": "1", "MASTER_PORT": str(free_port()),
        }  # fmt: skip
        self.ranks = [
            subprocess.Popen(
                [sys.executable, str(folder / "train.py"), str(folder), name],
                env={**common, "RANK": str(rank), "LOCAL_RANK": str(rank)},
                stdout=subprocess.DEVNULL,
                stderr=(folder / f"stderr{rank}").open("wb"),
            )
            for rank in range(RANKS)
        ]

    def says(self, rank: int) -> dict[str, Any]:
        path = self.folder / f"rank{rank}"
        return (
            dict(json.loads(path.read_text())) if path.exists() else {"steps": 0, "longest": 0.0, "saved": []}
        )

    def wait_steps(self, more: int) -> None:
        """Until rank 0 has done so many more."""
        until = self.says(0)["steps"] + more
        assert wait_until(lambda: self.says(0)["steps"] >= until, LIMIT_SECONDS), self.errors()

    def errors(self) -> str:
        return "\n".join((self.folder / f"stderr{rank}").read_text()[-2000:] for rank in range(RANKS))

    def runner(self) -> int:
        (state,) = (self.folder / ".local" / "share" / "trainmaster" / "detached").glob("*/state.json")
        return int(json.loads(state.read_text())["runner"]["pid"])

    def close(self) -> None:
        for rank in self.ranks:
            rank.kill()
            rank.wait()


@pytest.fixture
def stack(server: Server) -> Stack:
    return Stack(server, [])


@pytest.fixture
def gangs(tmp_path: Path, stack: Stack) -> Iterator[list[Gang]]:
    started: list[Gang] = []
    yield started
    for gang in started:
        gang.close()


def reported(stack: Stack, trial_id: int, group: str) -> list[int]:
    """The steps of all reports of a group, as they are stored."""
    with ServerClient(stack.server.url, stack.token) as client:
        path = "/api/v1/trials/metrics/trial_metrics"
        text = client.get(path, query={"trialIds": trial_id, "group": group}).body.decode()
    rows = [row for line in text.splitlines() if line for row in json.loads(line)["result"]["metrics"]]
    return [row["totalBatches"] for row in rows]


def test_nothing_is_lost_while_the_server_is_away_in_the_middle_and_at_the_end(
    stack: Stack, gangs: list[Gang], tmp_path: Path, minute: float
) -> None:
    gang = Gang(tmp_path, stack, "outage")
    gangs.append(gang)
    gang.wait_steps(20)
    stack.server.stop()
    gang.wait_steps(int(minute / 3 * 10))  # a third of a minute at least, and a checkpoint
    os.kill(gang.runner(), signal.SIGKILL)
    stack.server.start()
    gang.wait_steps(30)
    stack.server.stop()
    (tmp_path / "end").touch()
    assert wait_until(lambda: gang.says(1)["saved"] and gang.ranks[1].poll() is not None, LIMIT_SECONDS), (
        gang.errors()
    )
    assert wait_until(
        lambda: "Still to be sent" in gang.errors() or "Not sent" in gang.errors(), LIMIT_SECONDS
    )
    stack.server.start()
    assert [rank.wait(LIMIT_SECONDS) for rank in gang.ranks] == [0, 0], gang.errors()
    (experiment,) = stack.get("/api/v1/experiments?name=outage")["experiments"]
    assert stack.wait_end(experiment["id"], LIMIT_SECONDS) == "STATE_COMPLETED"
    trial_id = stack.trial(experiment["id"])["id"]
    steps = gang.says(0)["steps"]
    for rank in range(RANKS):
        lines = [record["log"] for record in stack.records(trial_id, f"rankIds={rank}")]
        assert [line for line in lines if line.startswith("line")] == [
            f"line {step}" for step in range(steps)
        ]
        assert gang.says(rank)["longest"] < 10, "a step has waited for the server"
        assert reported(stack, trial_id, f"rank{rank}") == list(range(steps))
    checkpoints = stack.get(f"/api/v1/trials/{trial_id}/checkpoints")["checkpoints"]
    states = {checkpoint["uuid"]: checkpoint["state"] for checkpoint in checkpoints}
    assert states == dict.fromkeys(gang.says(0)["saved"], "STATE_COMPLETED")


def test_a_killed_rank_is_named_and_the_experiment_is_an_error(
    stack: Stack, gangs: list[Gang], tmp_path: Path
) -> None:
    gang = Gang(tmp_path, stack, "killed")
    gangs.append(gang)
    gang.wait_steps(5)
    gang.ranks[1].kill()
    assert gang.ranks[0].wait(LIMIT_SECONDS) == 1, "it has lost its peer"
    gang.ranks[1].wait()
    (experiment,) = stack.get("/api/v1/experiments?name=killed")["experiments"]
    assert stack.wait_end(experiment["id"], LIMIT_SECONDS) == "STATE_ERROR"
    texts = [record["log"] for record in stack.records(stack.trial(experiment["id"])["id"])]
    assert any("rank 1 ended without core_v2.close()" in text for text in texts), texts[-20:]
    assert any("PeerLost" in text for text in texts), "the other rank's own words are there too"
