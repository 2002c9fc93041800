"""Detached mode of the published client: core_v2 of several ranks, whose run appears as any other."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.compat.conftest import LIMIT_SECONDS, PublishedClient

pytestmark = pytest.mark.compat

PROGRAM = Path(__file__).with_name("programs") / "detached_sharded.py"
RANKS = 2

Run = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture
def run(det: PublishedClient, tmp_path: Path) -> Run:
    """Run the program under torchrun with the published client; its checkpoints go to `tmp_path`/stored."""
    pytest.importorskip("torch")
    here = [folder for folder in sys.path if folder.endswith(("site-packages", "dist-packages"))]
    (tmp_path / "sitecustomize.py").write_text(
        f"import sys\nsys.path += {here!r}\n"
    )  # behind its own: for torch
    (tmp_path / "stored").mkdir()

    def start(*arguments: str) -> subprocess.CompletedProcess[str]:
        environment = {
            "HOME": str(det.home),
            "PATH": os.environ["PATH"],
            "PYTHONPATH": str(tmp_path),
            "DET_MASTER": det.server.url,
            "DET_USER": "admin",
            "DET_PASS": det.server.password,
        }
        torchrun = [
            "-m",
            "torch.distributed.run",
            "--standalone",
            f"--nproc_per_node={RANKS}",
            "--max_restarts=0",
        ]
        command = [det.program.with_name("python"), *torchrun, PROGRAM, tmp_path / "stored", *arguments]
        return subprocess.run(
            [str(word) for word in command], env=environment, text=True, capture_output=True,
            timeout=LIMIT_SECONDS, check=False, cwd=tmp_path,
        )  # fmt: skip

    return start


def found(
    det: PublishedClient, ran: subprocess.CompletedProcess[str]
) -> tuple[dict[str, Any], dict[str, Any]]:
    """The records of the experiment and the trial that it printed."""
    numbers = re.search(r"/det/experiments/(\d+) (\d+)", ran.stdout)
    assert numbers, ran.stdout + ran.stderr
    token = det.server.token()
    experiment = det.server.request("GET", f"/api/v1/experiments/{numbers[1]}", token=token)["experiment"]
    return experiment, det.server.request("GET", f"/api/v1/trials/{numbers[2]}", token=token)["trial"]


def test_a_sharded_run_appears_with_all_that_it_reports(
    det: PublishedClient, run: Run, tmp_path: Path
) -> None:
    ran = run("sharded")
    assert ran.returncode == 0, ran.stdout + ran.stderr
    experiment, trial = found(det, ran)
    assert (experiment["state"], trial["state"]) == ("STATE_COMPLETED", "STATE_COMPLETED")
    assert experiment["unmanaged"] and experiment["name"] == "sharded" and experiment["checkpointCount"] == 1
    assert trial["hparams"] == {"lr": 0.5} and trial["runnerState"] == "checkpoint stored"
    assert trial["bestValidation"]["metrics"]["avgMetrics"] == {"loss": 1 / 20}
    assert trial["summaryMetrics"]["avg_metrics"]["rank"]["count"] == 20
    assert {trial["summaryMetrics"]["avg_metrics"]["rank"][name] for name in ("min", "max")} == {0.0, 1.0}
    logs = det("trial", "logs", str(trial["id"]))
    for rank in range(RANKS):
        assert f"rank {rank} goes on from step 0" in logs
    path = f"/api/v1/trials/{trial['id']}/checkpoints"
    (checkpoint,) = det.server.request("GET", path, token=det.server.token())["checkpoints"]
    assert checkpoint["metadata"] == {"steps_completed": 20, "rank_0": "ok", "rank_1": "ok"}
    assert {"state_0", "state_1"} <= set(checkpoint["resources"])
    assert (tmp_path / "stored" / checkpoint["uuid"] / "state_1").read_text() == "1"
    with urllib.request.urlopen(f"{det.server.url}/det/experiments/{experiment['id']}") as answer:
        assert answer.status == 200  # the address that it prints leads somewhere
    refused = det.run("experiment", "kill", str(experiment["id"]))
    assert "runs outside the queue" in refused.stdout + refused.stderr


def test_one_that_raises_ends_in_error_and_goes_on_when_it_is_run_again(
    det: PublishedClient, run: Run
) -> None:
    experiment, trial = found(det, run("failing", "fail"))
    assert (experiment["state"], trial["state"]) == ("STATE_ERROR", "STATE_ERROR")
    again = run("failing")
    assert again.returncode == 0, again.stdout + again.stderr
    assert "goes on from step 20" in again.stdout
    experiment_again, trial_again = found(det, again)
    assert (experiment_again["id"], trial_again["id"]) == (experiment["id"], trial["id"])
    assert (experiment_again["state"], trial_again["state"]) == ("STATE_COMPLETED", "STATE_COMPLETED")
