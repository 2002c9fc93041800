"""The private /run of trials that use the host's own `determined`; tests/compat runs one to its end."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.trainmaster.made_run import environment_of, make_run

PROGRAM = """
import json, os, sys
from trainmaster._info import get_cluster_info
from trainmaster.paths import RunPaths
from trainmaster.runner import installed_sdk, mount_namespace, own_view
from trainmaster.runner.state import read_spec

before = sorted(os.listdir("/run"))
if mount_namespace.problem() is not None:
    sys.exit(77)
paths = RunPaths.from_environment()
own_view.planned(paths, read_spec(paths), "/bundle").take()
assert own_view.is_taken(paths.code)
after = sorted(os.listdir("/run"))
assert os.listdir("/run/determined") == ["workdir"]
installed_sdk.INFO.mkdir()
print(json.dumps([before, after, installed_sdk.info_files(get_cluster_info())]))
"""


def made(folder: Path) -> Path:
    storage = {"type": "shared_fs", "host_path": "/shared", "storage_path": "kept", "save_trial_latest": 2}
    trial = {
        "trial_id": 11, "experiment_id": 7, "trial_seed": 5, "hparams": {"lr": 0.1}, "run_id": 3,
        "config": {"entrypoint": "python3 train.py", "checkpoint_storage": storage},
        "steps_completed": 40, "latest_checkpoint": "an-id",
    }  # fmt: skip
    environment = {"TRAINMASTER_SDK": "installed"}
    return make_run(folder, members=2, member=1, slots=2, trial=trial, environment=environment)


@pytest.mark.parametrize(
    "before", [[], ["setpriv", "--bounding-set=-sys_admin"]], ids=["as we are", "unprivileged"]
)
def test_the_package_finds_its_files_in_a_run_folder_that_nobody_else_sees(
    tmp_path: Path, before: list[str]
) -> None:
    if before and (os.geteuid() != 0 or not shutil.which("setpriv")):
        pytest.skip("needs root and setpriv")
    environment = environment_of(made(tmp_path), TRAINMASTER_SDK="installed")
    command = [*before, sys.executable, "-c", PROGRAM]
    ran = subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=60)
    if ran.returncode == 77:
        pytest.skip("needs mount namespaces")
    there, after, files = json.loads(ran.stdout)
    assert {*there} - {"determined"} <= {*after}, "what was in /run is there still"
    assert not Path("/run/determined/info").exists()
    assert files["rendezvous.json"] == {
        "container_addrs": ["127.0.0.1"] * 2,
        "container_rank": 1,
        "container_slot_counts": [2, 2],
    }
    cluster, trial = files["cluster.json"], files["trial.json"]
    assert (cluster["latest_checkpoint"], cluster["session_token"]) == ("an-id", "run-token")
    assert (trial["steps_completed"], trial["trial_run_id"], trial["hparams"]) == (40, 3, {"lr": 0.1})
    assert trial["config"]["checkpoint_storage"] == {
        "type": "directory",
        "container_path": "/shared/kept",
        "save_trial_latest": 2,
    }


def test_without_a_view_of_its_own_it_does_not_start(tmp_path: Path) -> None:
    package = tmp_path / "site" / "determined"
    package.mkdir(parents=True)
    (package / "__init__.py").touch()
    environment = environment_of(made(tmp_path / "run"), TRAINMASTER_SDK="installed")
    environment["PYTHONPATH"] += f"{os.pathsep}{package.parent}"
    command = [sys.executable, "-m", "trainmaster.runner.installed_sdk"]
    ran = subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=60)
    assert ran.returncode == 1
    assert "environment.sdk: installed needs a separate mount namespace" in ran.stderr


def test_a_host_without_the_package_says_so(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "trainmaster.runner.installed_sdk"]
    environment = environment_of(made(tmp_path), TRAINMASTER_SDK="installed")
    ran = subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=60)
    assert ran.returncode == 1
    assert f"environment.sdk is installed, and {sys.executable} has no package determined" in ran.stderr
