"""torchrun under our launch module; with a real torchrun and gloo where torch is installed."""

import importlib.util
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.trainmaster.made_run import environment_of, make_run, records
from trainmaster.launch.torch_distributed import UsageError, parse, torchrun_command

needs_torch = pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="PyTorch is not installed")

_LAUNCH = [sys.executable, "-m", "determined.launch.torch_distributed"]


def wait_for(condition: Callable[[], bool], seconds: float = 60) -> None:
    until = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < until, "the condition did not come true in time"
        time.sleep(0.02)


@contextmanager
def launched(run: Path | None, script: Path, *arguments: str, **more: str) -> Iterator[subprocess.Popen[str]]:
    """The launch module on `script`, in a session of its own as the host part starts it."""
    process = subprocess.Popen(
        [*_LAUNCH, str(script), *arguments],
        env=environment_of(run, **more),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        yield process
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGTERM)
        process.communicate()


def stdout_of(run: Path, rank: int) -> str:
    path = run / "spool" / f"rank{rank}.stdout"
    return path.read_text() if path.exists() else ""


def gone(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except FileNotFoundError:
        return True


def test_overrides_end_with_two_dashes_and_a_script_is_needed() -> None:
    assert parse(["train.py", "--lr", "1"]) == ([], ["train.py", "--lr", "1"])
    assert parse(["--rdzv_endpoint=x:1", "--", "train.py", "--", "x"]) == (
        ["--rdzv_endpoint=x:1"],
        ["train.py", "--", "x"],
    )
    assert parse(["--", "train.py"]) == ([], ["train.py"])
    assert parse(["--trial", "model_def:Trial"])[1][-1] == "model_def:Trial"
    for wrong, sentence in (
        ([], "empty script"),
        (["--nnodes=2", "--"], "empty script"),
        (["--nnodes=2"], "end with `--`"),
        (["--trial", "model_def:Trial", "x"], "either a script or a trial"),
    ):
        with pytest.raises(UsageError, match=sentence):
            parse(wrong)


def test_the_gangs_shape_becomes_torchruns_options(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from trainmaster import get_cluster_info

    monkeypatch.delenv("C10D_PORT", raising=False)
    run = make_run(tmp_path, slots=3, member=1, members=2, c10d=29555)
    monkeypatch.setenv("TRAINMASTER_RUN_DIR", str(run))
    command = torchrun_command(get_cluster_info(), ["--max_restarts=2"], ["train.py", "--lr", "1"])
    options = command[command.index("torch.distributed.run") + 1 :]
    assert options[:7] == [
        "--nnodes=2",
        "--nproc_per_node=3",
        "--node_rank=1",
        "--max_restarts=0",
        "--rdzv_backend=static",
        "--master_addr=127.0.0.1",
        "--master_port=29555",
    ]
    assert options[-4:] == [sys.executable, "train.py", "--lr", "1"]
    assert options.index("--max_restarts=2") > options.index("--max_restarts=0")


def test_a_run_without_slots_has_one_rank(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from trainmaster import get_cluster_info

    monkeypatch.setenv("TRAINMASTER_RUN_DIR", str(make_run(tmp_path, slots=0)))
    assert "--nproc_per_node=1" in torchrun_command(get_cluster_info(), [], ["train.py"])


@needs_torch
def test_two_ranks_reduce_with_gloo_and_write_their_own_logs(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", slots=2)
    script = tmp_path / "train.py"
    script.write_text(
        "import torch, torch.distributed as dist, determined as det\n"
        "dist.init_process_group('gloo')\n"
        "value = torch.tensor([dist.get_rank() + 1.0])\n"
        "dist.all_reduce(value)\n"
        "with det.core.init(distributed=det.core.DistributedContext.from_torch_distributed()) as core:\n"
        "    print('sum', value.item(), core.distributed.allgather(core.distributed.rank))\n"
        "    if core.distributed.rank == 0:\n"
        "        core.train.report_training_metrics(1, {'sum': value})\n"
    )
    with launched(run, script) as process:
        out, err = process.communicate(timeout=60)
    assert process.returncode == 0, err
    assert (out, stdout_of(run, 0), stdout_of(run, 1)) == ("", *["sum 3.0 [0, 1]\n"] * 2)
    assert [record["metrics"] for record in records(run)] == [{"sum": [3.0]}]
    assert sorted(path.name for path in run.iterdir()) == ["code", "control", "spec.json", "spool", "stacks"]


@needs_torch
def test_the_exit_code_is_that_of_the_rank_that_failed_first(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", slots=2)
    script = tmp_path / "train.py"
    script.write_text(
        "import os, signal, sys, time, torch\n"
        "if os.environ['RANK'] == '1':\n"
        "    while not os.path.exists(sys.argv[1] + '/stubborn'): time.sleep(0.02)\n"
        "    sys.exit(3)\n"
        "signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
        "print(os.getpid(), flush=True)\n"
        "open(sys.argv[1] + '/stubborn', 'w').close()\n"
        "time.sleep(100)\n"
    )
    with launched(run, script, str(tmp_path), TRAINMASTER_PEER_GRACE_SECONDS="0.5") as process:
        process.communicate(timeout=60)
    assert process.returncode == 3
    [record] = records(run, 1)
    assert (record["type"], record["rank"], record["code"], record["signal"]) == ("rank_failed", 1, 3, None)
    [record] = records(run, 0)  # it was stopped for the other's failure
    assert (record["type"], record["rank"], record["code"]) == ("rank_ended", 0, 137)
    assert gone(int(stdout_of(run, 0)))


@pytest.mark.survive(15)
@needs_torch
def test_a_stop_leaves_every_rank_its_own_time_to_save(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", slots=2)
    script = tmp_path / "train.py"
    script.write_text(
        "import os, signal, sys, time, torch\n"
        "def save(*_):\n"
        "    open(sys.argv[1] + '/asked', 'w').close()\n"
        "    while not os.path.exists(sys.argv[1] + '/go'): time.sleep(0.02)\n"
        "    print('saved', flush=True)\n"
        "    sys.exit(0)\n"
        "if os.environ['RANK'] == '0': signal.signal(signal.SIGTERM, save)\n"
        "print('ready', flush=True)\n"
        "time.sleep(100)\n"
    )
    with launched(run, script, str(tmp_path)) as process:
        wait_for(lambda: stdout_of(run, 0) == stdout_of(run, 1) == "ready\n")
        os.killpg(process.pid, signal.SIGTERM)
        ranks = next(run.glob("ranks-*"))
        wait_for(lambda: (tmp_path / "asked").exists() and (ranks / "rank1.exit").exists())
        assert process.poll() is None  # rank 1 has died of the signal, rank 0 goes on saving
        (tmp_path / "go").touch()
        process.communicate(timeout=60)
    assert process.returncode == 128 + signal.SIGTERM
    assert stdout_of(run, 0) == "ready\nsaved\n"
    assert [(record["type"], record["code"]) for record in records(run, 1)] == [("rank_ended", 143)]


@pytest.mark.survive(12)
@needs_torch
@pytest.mark.parametrize("torch", ["", ", torch"], ids=["executed ranks", "forked ranks"])
def test_ranks_end_when_torchrun_is_killed(tmp_path: Path, torch: str) -> None:
    run = make_run(tmp_path / "run", slots=1)
    script = tmp_path / "train.py"
    script.write_text(
        f"import os, time{torch}\n"
        "def read(file): return open('/proc/' + file).read()\n"
        "torchrun = os.getppid()\n"
        "while not 'torch.distributed.run --nnodes' in read(f'{torchrun}/cmdline').replace('\\0', ' '):\n"
        "    torchrun = read(f'{torchrun}/stat').rpartition(')')[2].split()[1]\n"
        "print(os.getpid(), torchrun, flush=True)\n"
        "time.sleep(100)\n"
    )
    with launched(run, script, TRAINMASTER_PEER_GRACE_SECONDS="1") as process:
        wait_for(lambda: stdout_of(run, 0).endswith("\n"))
        rank, torchrun = (int(part) for part in stdout_of(run, 0).split())
        os.kill(torchrun, signal.SIGKILL)
        process.communicate(timeout=60)
    assert process.returncode == 128 + signal.SIGKILL
    assert gone(rank)


def test_a_python_without_torch_is_named(tmp_path: Path) -> None:
    program = (
        "import sys\n"
        "sys.modules['torch'] = None\n"
        "from trainmaster.launch.torch_distributed import main\n"
        "sys.exit(main(['train.py']))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], env=environment_of(None), capture_output=True, text=True, check=False
    )
    assert done.returncode == 1
    assert "has no PyTorch" in done.stderr
