"""TF_CONFIG of a gang; TensorFlow itself is not needed for it."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.trainmaster.made_run import environment_of, make_run
from trainmaster import get_cluster_info
from trainmaster.core._distributed import worker_of
from trainmaster.launch.tensorflow import parse, tf_config
from trainmaster.launch.torch_distributed import UsageError


def cluster_of(run: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setenv("TRAINMASTER_RUN_DIR", str(run))
    return get_cluster_info()


def test_each_host_is_a_worker_and_the_context_reads_what_the_launcher_wrote(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    info = cluster_of(make_run(tmp_path / "two", slots=4, member=1, members=2), monkeypatch)
    info.container_addrs = ["fd00::1", "10.0.0.2"]
    found = tf_config(info, 29400)
    assert found is not None and json.loads(found) == {
        "cluster": {"worker": ["[fd00::1]:29400", "10.0.0.2:29400"]},
        "task": {"type": "worker", "index": 1},
    }
    assert worker_of(found) == {
        "rank": 1, "size": 2, "local_rank": 0, "local_size": 1, "cross_rank": 1, "cross_size": 2,
        "chief_ip": "fd00::1",
    }  # fmt: skip
    alone = cluster_of(make_run(tmp_path / "one", slots=4), monkeypatch)
    assert tf_config(alone, 29400) is None and worker_of(None) is None
    with pytest.raises(RuntimeError, match="makes this task a ps"):
        worker_of(json.dumps({"cluster": {"ps": ["a:1"]}, "task": {"type": "ps", "index": 0}}))


def test_the_port_comes_before_the_script() -> None:
    assert parse(["--port", "29401", "--", "train.py", "--port", "1"]) == (
        29401,
        ["train.py", "--port", "1"],
    )
    assert parse(["--port=7", "train.py"]) == (7, ["train.py"])
    assert parse(["-m", "pkg.train"]) == (None, ["-m", "pkg.train"])
    for wrong in ([], ["--"], ["--port", "x", "train.py"], ["--trial", "a:B"]):
        with pytest.raises(UsageError):
            parse(wrong)


def test_a_host_alone_runs_one_worker_with_all_its_slots(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(
        "import os, sys; print(os.environ.get('TF_CONFIG'), os.environ['DET_CHIEF_IP']); sys.exit(5)"
    )
    run = make_run(tmp_path / "run", slots=2)
    command = [sys.executable, "-m", "determined.launch.tensorflow", "train.py"]
    done = subprocess.run(command, env=environment_of(run), cwd=tmp_path, check=False, timeout=60)
    assert (done.returncode, (run / "spool" / "rank0.stdout").read_text()) == (5, "None 127.0.0.1\n")
