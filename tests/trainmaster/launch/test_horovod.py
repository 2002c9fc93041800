"""horovodrun under our launch module, as text: it does not build for the Python of these tests."""

import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.trainmaster.made_run import environment_of, make_run
from trainmaster import get_cluster_info
from trainmaster.core import DistributedContext
from trainmaster.launch.horovod import horovodrun_command, split_environment
from trainmaster.launch.torch_distributed import UsageError


def cluster_of(run: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setenv("TRAINMASTER_RUN_DIR", str(run))
    return get_cluster_info()


def test_a_hosts_slots_become_horovodruns_ranks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    info = cluster_of(make_run(tmp_path, slots=4), monkeypatch)
    command = horovodrun_command(
        info, ["--fusion-threshold-mb", "1", "--cycle-time-ms", "2"], ["train.py", "-x"]
    )
    assert command[:10] == [
        *["horovodrun", "-np", "4", "-H", "localhost:4", "--gloo"],
        *["--fusion-threshold-mb", "1", "--cycle-time-ms", "2"],
    ]
    assert command[10:13] == [sys.executable, "-I", "-S"]
    assert command[14:] == ["HOROVOD_RANK,OMPI_COMM_WORLD_RANK,PMI_RANK", sys.executable, "train.py", "-x"]
    assert "--gloo" not in horovodrun_command(info, ["--mpi"], ["train.py"])


def test_several_hosts_are_refused_by_a_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    info = cluster_of(make_run(tmp_path, slots=2, members=2), monkeypatch)
    with pytest.raises(UsageError, match=r"one host, and this trial has 2.*torch_distributed across hosts"):
        horovodrun_command(info, [], ["train.py"])


def test_what_horovodrun_would_show_is_not_given_to_it_but_to_its_ranks(tmp_path: Path) -> None:
    environment = {"PATH": "/usr/bin:/bin", "DET_SESSION_TOKEN": "secret", "AWS_KEY": "a b\nc"}
    assert split_environment(environment) == (
        {"PATH": "/usr/bin:/bin"},
        {"DET_SESSION_TOKEN": "secret", "AWS_KEY": "a b\nc"},
    )
    program = f"""
import sys
from trainmaster.launch.rank_group import rank_command, run
from trainmaster.launch.horovod import split_environment
launcher = 'test -z "$AWS_KEY" || exit 9; HOROVOD_RANK=0 "$@" & HOROVOD_RANK=1 "$@"; wait'
rank = rank_command(["sh", "-c", 'echo "$AWS_KEY"'], "HOROVOD_RANK")
sys.exit(run(["sh", "-c", launcher, "sh", *rank], *split_environment({{**__import__("os").environ, **{environment}}})))
"""
    run = make_run(tmp_path, slots=2)
    done = subprocess.run([sys.executable, "-c", program], env=environment_of(run), check=False, timeout=60)
    assert done.returncode == 0
    for rank in range(2):
        assert (run / "spool" / f"rank{rank}.stdout").read_text() == "a b\nc\n"


@pytest.mark.parametrize("module", ["autohorovod", "horovod"])
def test_one_slot_needs_no_horovod_where_the_old_name_is_used_and_several_do(
    module: str, tmp_path: Path
) -> None:
    (tmp_path / "train.py").write_text("import sys; print(sys.argv[1:]); sys.exit(6)")
    run = make_run(tmp_path / "run", slots=1)
    done = subprocess.run(
        [sys.executable, "-m", f"determined.launch.{module}", "--", "train.py", "a"],
        env=environment_of(run, PATH="/nowhere"),
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    if module == "autohorovod":
        assert (done.returncode, (run / "spool" / "rank0.stdout").read_text()) == (6, "['a']\n")
    else:
        assert (done.returncode, "has no Horovod" in done.stderr) == (1, True)


def test_the_context_takes_horovods_ranks_once_it_is_initialized() -> None:
    numbers = {"rank": 0, "size": 1, "local_rank": 0, "local_size": 1, "cross_rank": 0, "cross_size": 1}
    hvd = SimpleNamespace(
        is_initialized=lambda: False, **{name: lambda n=n: n for name, n in numbers.items()}
    )
    with pytest.raises(ValueError, match=r"call hvd.init\(\) first"):
        DistributedContext.from_horovod(hvd)
    hvd.is_initialized = lambda: True
    assert DistributedContext.from_horovod(hvd).get_size() == 1
