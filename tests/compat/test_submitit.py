"""submitit and Hydra's submitit launcher, as published, on Trainmaster by the plugin that its wheel carries."""

from __future__ import annotations

import json
import os
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.compat.conftest import LIMIT_SECONDS
from tests.rig.server import Server
from tests.rig.stack import Stack, local_host

pytestmark = pytest.mark.compat

PROGRAMS = Path(__file__).with_name("programs")


@pytest.fixture(scope="module")
def stack(server: Server) -> Iterator[Stack]:
    with local_host(server, "submitit", slots=2) as stack:
        yield stack


def run(stack: Stack, python: Path, folder: Path, *words: str) -> str:
    """What the program prints, in a folder of its own, as a user of the server; it must succeed."""
    others = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("DET_", "PYTHON", "TRAINMASTER_"))
    }
    environment = others | {
        "HOME": str(folder), "TRAINMASTER_MASTER": stack.server.url, "TRAINMASTER_TOKEN": stack.server.token(),
    }  # fmt: skip
    ran = subprocess.run(
        [str(python), *words], cwd=folder, env=environment, text=True, capture_output=True, timeout=LIMIT_SECONDS,
        check=False,
    )  # fmt: skip
    assert ran.returncode == 0, ran.stdout + ran.stderr
    return ran.stdout


def test_submitit_submits_waits_fails_continues_and_cancels(
    stack: Stack, submitit_python: Path, tmp_path: Path
) -> None:
    seen = json.loads(
        run(stack, submitit_python, tmp_path, str(PROGRAMS / "submitit_tour.py"), str(tmp_path)).splitlines()[
            -1
        ]
    )
    assert (seen["result"], seen["stdout"], seen["state"]) == (12, True, "COMPLETED")
    assert (seen["array"], seen["indices"]) == ([11, 22, 33], ["0", "1", "2"])
    assert (seen["failed"], seen["failed state"]) == (True, "FAILED")
    assert [row[:3] for row in seen["tasks"]] == [[0, 2, 1], [1, 2, 1]]
    begun, restarts = seen["continued"]
    assert begun and restarts == 1, "it was told before its time was over, and continued from there"
    assert seen["same id"] and seen["canceled"] == "CANCELLED"
    assert "a batch script runs on one host here" in seen["gang"]
    stack.wait_free()
    assert "adding 5 7" in [record["log"] for record in stack.task_records(seen["id"], "")]


def test_hydra_runs_a_sweep_as_an_array(stack: Stack, submitit_python: Path, tmp_path: Path) -> None:
    words = ["-m", "hydra/launcher=submitit_trainmaster", "hydra.launcher.array_parallelism=1", "+x=1,2"]
    run(stack, submitit_python, tmp_path, str(PROGRAMS / "hydra_app.py"), *words)
    logs = [path.read_text() for path in tmp_path.rglob("*_log.out")]
    found = dict(re.findall(r"^x is (\d) in (\S+)$", "\n".join(logs), re.MULTILINE))
    assert sorted(found) == ["1", "2"]
    assert {name.partition("_")[2] for name in found.values()} == {"0", "1"}
    stack.wait_free()
