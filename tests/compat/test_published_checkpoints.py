"""The published client's checkpoints: listed, described, downloaded, thinned out and deleted; experiments go on."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.compat.conftest import PATIENCE_SECONDS, PublishedClient
from tests.compat.test_published_client import run_to_its_end, wait_for
from tests.rig.pace import wait_until

pytestmark = pytest.mark.compat

SAVES = """
import pathlib
import determined as det
info = det.get_cluster_info()
with det.core.init() as core:
    for step in (10, 20, 30):
        core.train.report_validation_metrics(step, {"loss": abs(step - 20) / 10})
        with core.checkpoint.store_path({"steps_completed": step}) as (path, _):
            pathlib.Path(path, "weights").write_text(f"weights at {step}")
            pathlib.Path(path, "deep").mkdir()
            pathlib.Path(path, "deep/optimizer.pt").write_text("state")
"""


@pytest.fixture(scope="module")
def ended(det: PublishedClient, tmp_path_factory: pytest.TempPathFactory) -> int:
    experiment, _ = run_to_its_end(det, tmp_path_factory.mktemp("saves"), SAVES)
    return experiment


def checkpoints(det: PublishedClient, experiment: int) -> dict[int, dict[str, Any]]:
    path = f"/api/v1/experiments/{experiment}/checkpoints"
    found = det.server.request("GET", path, token=det.server.token())["checkpoints"]
    return {row["metadata"]["steps_completed"]: row for row in found}


def test_checkpoints_are_listed_downloaded_and_deleted(
    det: PublishedClient, ended: int, tmp_path: Path
) -> None:
    def states() -> list[str]:
        return [row["state"].removeprefix("STATE_") for row in checkpoints(det, ended).values()]

    assert wait_until(lambda: states() == ["DELETED", "COMPLETED", "COMPLETED"], PATIENCE_SECONDS), states()
    best = checkpoints(det, ended)[20]["uuid"]
    assert best in det("experiment", "list-checkpoints", str(ended), "--best", "1")
    assert best in det("checkpoint", "describe", best)
    for mode in ("auto", "master"):
        target = tmp_path / mode
        det("checkpoint", "download", best, "-o", str(target), "--mode", mode, "-q")
        assert (target / "weights").read_text() == "weights at 20"
        assert (target / "deep/optimizer.pt").read_text() == "state"
    det("experiment", "download", str(ended), "-o", str(tmp_path / "top"), "-q")
    assert (tmp_path / "top" / best / "weights").exists()
    det("checkpoint", "rm", best, "--glob", "deep/**", "--yes")
    assert checkpoints(det, ended)[20]["state"] == "STATE_PARTIALLY_DELETED"
    det("checkpoint", "rm", best)
    assert "deep/optimizer.pt" not in checkpoints(det, ended)[20]["resources"]
    policy = ("--save-experiment-best", "0", "--save-trial-best", "0", "--save-trial-latest", "1")
    said = det.run("experiment", "set", "gc-policy", str(ended), *policy).stdout
    assert "This policy will delete 1 checkpoints with validations and 0 checkpoints without" in said
    det("checkpoint", "delete", f"{best},{checkpoints(det, ended)[30]['uuid']}", "--yes")
    assert states() == ["DELETED"] * 3


def test_an_experiment_that_has_ended_is_continued(det: PublishedClient, ended: int) -> None:
    det("experiment", "continue", str(ended), "--config", "max_restarts=1")
    wait_for(det, ended, "COMPLETED")
    path = f"/api/v1/experiments/{ended}/checkpoints"
    assert len(det.server.request("GET", path, token=det.server.token())["checkpoints"]) == 6
