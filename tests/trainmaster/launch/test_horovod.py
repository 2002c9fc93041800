"""horovodrun under our launch module, as text: it does not build for the Python of these tests."""

import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.rig.ports import free_port
from tests.trainmaster.made_run import environment_of, make_run
from trainmaster import get_cluster_info
from trainmaster.core import DistributedContext
from trainmaster.launch.horovod import horovodrun_command, override_variables, split_environment
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


def test_across_hosts_horovods_options_become_variables() -> None:
    words = ["--fusion-threshold-mb", "1", "--cycle-time-ms=2", "--autotune", "--gloo"]
    assert override_variables(words) == {
        "HOROVOD_FUSION_THRESHOLD": "1048576",
        "HOROVOD_CYCLE_TIME": "2",
        "HOROVOD_AUTOTUNE": "1",
        "HOROVOD_CONTROLLER": "gloo",
    }
    for wrong in (["--mpi"], ["--cycle-time-ms"], ["--fusion-threshold-mb", "x"]):
        with pytest.raises(UsageError):
            override_variables(wrong)


#: What Horovod's ranks do first: say where they are, and ask for the others.
MEETING = """
import os, time, urllib.error, urllib.request
env = {name[8:].lower(): value for name, value in os.environ.items() if name.startswith("HOROVOD_")}
store = f"http://{env['gloo_rendezvous_addr']}:{env['gloo_rendezvous_port']}/global/"
def ask(key, data=None):
    method = "GET" if data is None else "PUT"
    return urllib.request.urlopen(urllib.request.Request(store + key, data=data, method=method), timeout=60).read()
def until(act):
    while True:
        try:
            return act()
        except OSError:  # the store is not there yet, or the other's word
            time.sleep(0.05)
own = "/".join(env[name] for name in ("local_rank", "local_size", "cross_rank", "cross_size"))
everybody = range(int(env["size"]))
until(lambda: ask(env["rank"], own.encode()))
print([until(lambda rank=rank: ask(str(rank))).decode() for rank in everybody], flush=True)
until(lambda: ask("met" + env["rank"], b"1"))
if env["rank"] == "0":  # the store lives as long as the first host's ranks
    [until(lambda rank=rank: ask(f"met{rank}")) for rank in everybody]
"""


def test_each_host_starts_its_own_ranks_and_they_meet_without_ssh(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(MEETING)
    port = free_port()
    runs = [
        make_run(tmp_path / str(member), slots=2, member=member, members=2, c10d=port) for member in (0, 1)
    ]
    program = """
import os, sys
from trainmaster import get_cluster_info
from trainmaster.launch.horovod import hosts_command
from trainmaster.launch.rank_group import run
sys.exit(run(hosts_command(get_cluster_info(), ["train.py"]), os.environ, slow_to_stop=True))
"""
    command = [sys.executable, "-c", program]
    hosts = [subprocess.Popen(command, env=environment_of(run), cwd=tmp_path) for run in runs]
    assert [host.wait(60) for host in hosts] == [0, 0]
    for rank in range(4):
        told = (runs[rank // 2] / "spool" / f"rank{rank}.stdout").read_text()
        assert told == "['0/2/0/2', '1/2/0/2', '0/2/1/2', '1/2/1/2']\n"


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


def test_a_host_without_horovod_says_so_across_hosts_too(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", members=2)
    for words, code, sentence in (
        (["train.py"], 1, "has no Horovod"),
        (["--mpi", "--", "train.py"], 2, "--mpi is not available across hosts"),
    ):
        command = [sys.executable, "-m", "determined.launch.horovod", *words]
        done = subprocess.run(
            command, env=environment_of(run), capture_output=True, text=True, check=False, timeout=60
        )
        assert (done.returncode, sentence in done.stderr) == (code, True), done.stderr
