"""`trainmaster run -- CMD`, off the cluster."""

import os
import subprocess
import sys
from pathlib import Path

from tests.trainmaster.made_run import ROOT, environment_of
from trainmaster.run import environment_for


def test_a_script_finds_determined_and_nothing_else_is_added_to_its_path(tmp_path: Path) -> None:
    environment = {**environment_of(None, XDG_CACHE_HOME=str(tmp_path)), "PYTHONPATH": str(ROOT)}
    program = "import sys; from trainmaster.run import run; run(sys.argv[1:])"
    script = "import determined as det, trainmaster; print(det is trainmaster, det.get_cluster_info())"
    for _ in range(2):
        done = subprocess.run(
            [sys.executable, "-c", program, sys.executable, "-c", script],
            env=environment,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.stdout == "True None\n", done.stderr
    [folder] = (tmp_path / "trainmaster").iterdir()
    there = {path.name for path in folder.iterdir()} - {"__pycache__"}
    assert there == {"sitecustomize.py", "trainmaster"}


def test_the_users_own_path_is_kept(tmp_path: Path, monkeypatch) -> None:  # type: ignore[no-untyped-def]
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    first, *rest = environment_for({"PYTHONPATH": "/mine", "A": "b"})["PYTHONPATH"].split(os.pathsep)
    assert Path(first).parent == tmp_path / "trainmaster"
    assert rest == ["/mine"]
