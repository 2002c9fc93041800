"""Detached runs against the whole server: the repository's examples as their users start them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.rig.ports import free_port
from tests.rig.server import ROOT, Server
from tests.rig.stack import Stack
from trainmaster.http import ServerClient

EXAMPLES = ROOT / "examples" / "detached"
LIMIT_SECONDS = 180
#: as a launcher starts it: under the published name by `trainmaster run`, under our own without it
STARTS = {
    "determined": [sys.executable, "-m", "trainmaster.cli.main", "run", "--", sys.executable],
    "trainmaster": [sys.executable],
}


@pytest.fixture
def stack(server: Server) -> Stack:
    return Stack(server, [])


def environment(stack: Stack, home: Path) -> dict[str, str]:
    kept = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("TRAINMASTER_", "DET_", "XDG_"))
    }
    ours = {"HOME": str(home), "DET_MASTER": stack.server.url, "DET_USER_TOKEN": stack.token}
    return {**kept, **ours, "PYTHONPATH": str(ROOT)}


def example(name: str, folder: Path, changes: Mapping[str, str]) -> Path:
    """The script, with some of its words changed, in a folder of its own."""
    text = (EXAMPLES / name).read_text()
    for before, after in changes.items():
        assert before in text, f"{name} has no {before!r} any more"
        text = text.replace(before, after)
    folder.mkdir()
    (folder / name).write_text(text)
    return folder / name


def experiment(stack: Stack, name: str) -> dict[str, Any]:
    found = stack.get(f"/api/v1/experiments?name={name}")["experiments"]
    return dict(max(found, key=lambda each: int(each["id"])))


def reported(stack: Stack, trial_id: int, group: str) -> dict[int, dict[str, Any]]:
    """The metrics of a trial by their steps."""
    with ServerClient(stack.server.url, stack.token) as client:
        path = "/api/v1/trials/metrics/trial_metrics"
        text = client.get(path, query={"trialIds": trial_id, "group": group}).body.decode()
    rows = [row for line in text.splitlines() if line for row in json.loads(line)["result"]["metrics"]]
    kind = "validation_metrics" if group == "validation" else "avg_metrics"
    return {row["totalBatches"]: row["metrics"][kind] for row in rows}


def test_the_sharded_tutorial_runs_under_both_names_side_by_side(stack: Stack, tmp_path: Path) -> None:
    pytest.importorskip("torch")
    torchrun = [
        "-m",
        "torch.distributed.run",
        "--nnodes=1",
        "--nproc_per_node=2",
        "--master_addr",
        "127.0.0.1",
    ]
    running = {}
    for package, start in STARTS.items():
        changes = {"from determined": f"from {package}", "detached-sharded": f"sharded-{package}"}
        script = example("sharded.py", tmp_path / package, changes)
        command = [*start, *torchrun, "--master_port", str(free_port()), "--max_restarts", "0", str(script)]
        running[package] = subprocess.Popen(
            command,
            env=environment(stack, tmp_path),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
    for package, process in running.items():
        out, err = process.communicate(timeout=LIMIT_SECONDS)
        assert process.returncode == 0, err
        found = experiment(stack, f"sharded-{package}")
        assert stack.wait_end(found["id"]) == "STATE_COMPLETED" and found["unmanaged"]
        assert f"{stack.server.url}/det/experiments/{found['id']}" in out
        trial_id = stack.trial(found["id"])["id"]
        training = reported(stack, trial_id, "training")
        assert {step: metrics["rank"] for step, metrics in training.items()} == {i: i % 2 for i in range(100)}
        assert sorted(reported(stack, trial_id, "validation")) == list(range(9, 100, 10))
        for rank in (0, 1):
            texts = [record["log"].partition(":")[0] for record in stack.records(trial_id, f"rankIds={rank}")]
            steps = [f"batch {i}" for i in range(rank, 100, 2)]
            assert [text for text in texts if text.startswith("batch")] == steps
        checkpoints = stack.get(f"/api/v1/trials/{trial_id}/checkpoints")["checkpoints"]
        assert {checkpoint["state"] for checkpoint in checkpoints} == {"STATE_COMPLETED"}
        (last,) = [each for each in checkpoints if each["metadata"]["steps_completed"] == 99]
        assert last["metadata"] == {"steps_completed": 99, "rank_0": "ok", "rank_1": "ok"}
        assert set(last["resources"]) == {"state_0", "state_1", "metadata.json"}


def test_a_run_goes_on_by_its_external_ids_on_another_machine(stack: Stack, tmp_path: Path) -> None:
    for start in (1, 2):
        script = example("resume.py", tmp_path / str(start), {"from determined": "from trainmaster"})
        home = tmp_path / f"home-{start}"
        home.mkdir()
        command = [sys.executable, str(script), "study"]
        result = subprocess.run(
            command,
            env=environment(stack, home),
            capture_output=True,
            text=True,
            timeout=LIMIT_SECONDS,
            check=False,
        )
        assert result.returncode == 0, result.stderr
        assert f"steps {10 * start}, value {0.9 ** (10 * start):.6f}" in result.stdout
    found = experiment(stack, "detached-study")
    assert stack.wait_end(found["id"]) == "STATE_COMPLETED"
    (trial,) = stack.get(f"/api/v1/experiments/{found['id']}/trials")["trials"]
    assert sorted(reported(stack, trial["id"], "training")) == list(range(1, 21))
