"""One script of experimental.client under our client and the published one, before the same server."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.compat.conftest import PublishedClient
from tests.rig.pace import wait_until
from trainmaster.run import environment_for

pytestmark = pytest.mark.compat

PROGRAM = Path(__file__).with_name("programs") / "client_tour.py"
ROOT = Path(__file__).resolve().parent.parent.parent
LIMIT_SECONDS = 300
#: what belongs to OAuth clients and Pachyderm; there are no objects of Model and ModelVersion, to try
NOT_HERE = {
    "Checkpoint.get_pachyderm_commit",
    "Experiment.get_pachyderm_config",
    *(
        f"{place}{verb}_oauth_client{plural}"
        for place in ("", "Determined.")
        for verb, plural in (("add", ""), ("list", "s"), ("remove", ""))
    ),
}


def test_the_documentation_lists_what_the_client_lacks() -> None:
    text = (ROOT / "docs/determined.md").read_text(encoding="utf-8")
    told = text.partition("In `determined.experimental.client`,")[2].partition("\n\n")[0]
    assert set(re.findall(r"`(\w+)`", told)) == {name.rpartition(".")[2] for name in NOT_HERE}


def tour(
    det: PublishedClient, python: Path, folder: Path, environment: dict[str, str]
) -> tuple[dict[str, Any], set[str]]:
    """What the script has seen in this Python, and which functions of the client it has not called."""
    folder.mkdir()
    ran = subprocess.run(
        [str(python), str(PROGRAM), det.server.url, str(folder), folder.name],
        input=det.server.password, env={"HOME": str(folder), "PATH": os.environ["PATH"], **environment},
        text=True, capture_output=True, timeout=LIMIT_SECONDS, check=False,
    )  # fmt: skip
    assert ran.returncode == 0, ran.stdout + ran.stderr
    experiment, uncalled, seen = ran.stdout.splitlines()[-3:]
    _event_files_come_and_go(det, experiment)
    return (dict(json.loads(seen)), set(json.loads(uncalled)))


def _event_files_come_and_go(det: PublishedClient, experiment: str) -> None:
    """What its trials have written for TensorBoard is on the server, until it is deleted."""
    folder = det.server.data / "tensorboard/experiment" / experiment
    assert wait_until(lambda: len([*folder.glob("trial/*/events.out.tfevents.1.host")]) == 2, 60)
    path = f"/api/v1/experiments/{experiment}/tensorboard-files"
    det.server.request("DELETE", path, token=det.server.token())
    assert not folder.exists()


def test_a_script_sees_the_same_under_both_clients(det: PublishedClient, tmp_path: Path) -> None:
    own, _ = tour(det, Path(sys.executable), tmp_path / "a1", environment_for({"PYTHONPATH": str(ROOT)}))
    published, uncalled = tour(det, det.program.with_name("python"), tmp_path / "b2", {})
    assert own == published
    assert uncalled == NOT_HERE, "each public function is tried, or listed in docs/determined.md"
    assert own["best first"][:2] == [[{"lr": 0.5}, 2, "COMPLETED"], [{"lr": 0.5}, 1, "COMPLETED"]]
    assert own["of trials"] == [[{"lr": 0.5}, 2, "COMPLETED"], [{"lr": 1.0}, 2, "COMPLETED"]]
    assert own["lines"] == ["line 1", "line 2", "line 3"]
