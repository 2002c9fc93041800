"""DeepSpeed's launcher under our launch module; with a real DeepSpeed where it is installed."""

import base64
import importlib.util
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.trainmaster.made_run import environment_of, make_run, records
from trainmaster import get_cluster_info
from trainmaster.core import DistributedContext
from trainmaster.launch.deepspeed import deepspeed_command, environment_for

needs_deepspeed = pytest.mark.skipif(
    importlib.util.find_spec("deepspeed") is None, reason="DeepSpeed is not installed"
)


def two_hosts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str) -> Any:
    """The second member of a gang of two hosts with two slots each."""
    slots = [{"index": index, "uuid": f"GPU-{index}", "kind": kind} for index in range(2)]
    run = make_run(tmp_path, slots=2, member=1, members=2, c10d=29555)
    spec = json.loads((run / "spec.json").read_text())
    (run / "spec.json").write_text(json.dumps({**spec, "slots": slots}))
    monkeypatch.setenv("TRAINMASTER_RUN_DIR", str(run))
    monkeypatch.delenv("C10D_PORT", raising=False)
    return get_cluster_info()


@pytest.mark.parametrize(("kind", "own"), [("cuda", ["GPU-0", "GPU-1"]), ("cpu", [0, 1])])
def test_the_gangs_shape_becomes_options_of_deepspeeds_launcher(
    kind: str, own: list[object], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    info = two_hosts(tmp_path, monkeypatch, kind)
    command = deepspeed_command(info, ["--bind_cores_to_rank"], ["train.py", "--lr", "1"])
    assert command[:3] == [sys.executable, "-m", "deepspeed.launcher.launch"]
    world = command[3].partition("--world_info=")[2]
    assert json.loads(base64.urlsafe_b64decode(world)) == {"host0": [0, 1], "host1": own}
    assert command[4:10] == [
        "--node_rank=1",
        "--master_addr=127.0.0.1",
        "--master_port=29555",
        "--no_python",
        "--no_local_rank",
        "--bind_cores_to_rank",
    ]
    assert command[10:13] == [sys.executable, "-I", "-S"]
    assert command[14:] == ["RANK", sys.executable, "train.py", "--lr", "1"]
    environment = environment_for(info)
    names = ("LOCAL_WORLD_SIZE", "GROUP_RANK", "GROUP_WORLD_SIZE", "DET_CHIEF_IP")
    assert [environment[name] for name in names] == ["2", "1", "2", "127.0.0.1"]


def test_the_context_reads_deepspeeds_variables_and_names_those_that_miss(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    values = {"RANK": 0, "WORLD_SIZE": 1, "LOCAL_RANK": 0, "LOCAL_SIZE": 1, "CROSS_RANK": 0}
    for name, value in values.items():
        monkeypatch.setenv(name, str(value))
    monkeypatch.delenv("CROSS_SIZE", raising=False)
    with pytest.raises(ValueError, match=r"not set: CROSS_SIZE.*determined\.launch\.deepspeed"):
        DistributedContext.from_deepspeed()
    monkeypatch.setenv("CROSS_SIZE", "1")
    assert (DistributedContext.from_deepspeed().size, DistributedContext.from_deepspeed().cross_size) == (
        1,
        1,
    )


@pytest.mark.parametrize(
    ("package", "title", "module"),
    [("deepspeed", "DeepSpeed", "deepspeed"), ("torch", "PyTorch", "torch_distributed")],
)
def test_a_python_without_the_package_is_named_and_help_needs_none(
    package: str, title: str, module: str
) -> None:
    program = f"""
import sys
sys.modules[{package!r}] = None
from determined.launch.{module} import main
sys.exit(10 * main(["-h"]) + main(["--quiet", "--", "train.py"]))
"""
    done = subprocess.run(
        [sys.executable, "-c", program], env=environment_of(None), capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout.startswith("usage: python3 -m trainmaster.launch.")) == (1, True)
    assert f"has no {title}" in done.stderr


@needs_deepspeed
@pytest.mark.chaos
def test_ranks_under_deepspeed_meet_and_the_first_failure_is_the_result(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", slots=2)
    script = tmp_path / "train.py"
    script.write_text(
        "import signal, sys, determined as det\n"
        "distributed = det.core.DistributedContext.from_deepspeed()\n"
        "print('ranks', distributed.allgather(distributed.rank), flush=True)\n"
        "sys.exit(5) if distributed.rank == 1 else signal.pause()\n"
    )
    done = subprocess.run(
        [sys.executable, "-m", "determined.launch.deepspeed", "--save_pid=0", "--", str(script)],
        env=environment_of(run, DS_ACCELERATOR="cpu"),
        capture_output=True,
        text=True,
        check=False,
        timeout=180,
    )
    assert done.returncode == 5, done.stderr
    for rank in range(2):
        assert (run / "spool" / f"rank{rank}.stdout").read_text() == "ranks [0, 1]\n"
    assert [(record["type"], record["code"]) for record in records(run, 1)] == [("rank_failed", 5)]
