"""One rank and its wrapper."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.trainmaster.made_run import ROOT, environment_of, make_run, records
from trainmaster.launch.wrap_rank import resolve_rank

WRAP = [sys.executable, "-I", "-S", str(ROOT / "trainmaster" / "launch" / "wrap_rank.py")]


def wait_for(condition: Callable[[], bool], seconds: float = 60) -> None:
    until = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < until, "the condition did not come true in time"
        time.sleep(0.01)


def test_a_rank_writes_straight_to_its_own_spool_files(tmp_path: Path) -> None:
    run = make_run(tmp_path)
    command = [*WRAP, "7", "sh", "-c", "echo out; printf '\\377' ; echo err >&2; readlink /proc/self/fd/1"]
    of_the_user = tmp_path / "rank7.exit"
    of_the_user.touch()
    done = subprocess.run(command, cwd=tmp_path, env=environment_of(run), capture_output=True, check=True)
    assert (done.stdout, done.stderr) == (b"", b"")
    assert of_the_user.exists(), (
        "without a launch module of ours there is no end of an earlier rank to forget"
    )
    own = run / "spool" / "rank7.stdout"
    assert own.read_bytes() == b"out\n\377" + str(own).encode() + b"\n"
    assert (run / "spool" / "rank7.stderr").read_bytes() == b"err\n"
    assert records(run, 7) == []


@pytest.mark.parametrize(("script", "code", "number"), [("exit 3", 3, None), ("kill -9 $$", 137, 9)])
def test_a_failure_is_recorded_with_code_signal_and_time(
    tmp_path: Path, script: str, code: int, number: int | None
) -> None:
    run = make_run(tmp_path)
    done = subprocess.run([*WRAP, "2", "sh", "-c", script], env=environment_of(run), check=False)
    assert done.returncode == code
    [record] = records(run, 2)
    assert abs(record.pop("t") - time.time()) < 60
    assert record == {"type": "rank_failed", "rank": 2, "code": code, "signal": number}


def test_a_command_that_does_not_exist_says_so_in_the_ranks_own_log(tmp_path: Path) -> None:
    run = make_run(tmp_path)
    done = subprocess.run([*WRAP, "0", "no-such-program"], env=environment_of(run), check=False)
    assert done.returncode == 127
    assert "no-such-program cannot be started" in (run / "spool" / "rank0.stderr").read_text()


def test_signals_reach_the_rank_and_its_end_is_its_own(tmp_path: Path) -> None:
    run = make_run(tmp_path)
    script = "trap 'echo saved; exit 0' TERM; echo ready; while :; do sleep 0.05; done"
    own = run / "spool" / "rank0.stdout"
    with subprocess.Popen([*WRAP, "0", "sh", "-c", script], env=environment_of(run)) as process:
        wait_for(lambda: own.exists() and own.read_text() == "ready\n")
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0
    assert own.read_text() == "ready\nsaved\n"


@pytest.mark.survive(12)
def test_the_rank_goes_on_when_its_wrapper_is_killed(tmp_path: Path) -> None:
    run = make_run(tmp_path)
    script = "echo $$; read go < gate; echo went on"
    os.mkfifo(tmp_path / "gate")
    own = run / "spool" / "rank0.stdout"
    with subprocess.Popen([*WRAP, "0", "sh", "-c", script], env=environment_of(run), cwd=tmp_path) as process:
        wait_for(lambda: own.exists() and own.read_text() != "")
        process.kill()
        process.wait()
        (tmp_path / "gate").write_text("go\n")
        wait_for(lambda: own.read_text().endswith("went on\n"))


def test_off_the_cluster_each_line_gets_the_ranks_prefix(tmp_path: Path) -> None:
    script = "echo one; echo two >&2; printf three"
    for rank, more in (("4", {}), ("MY_RANK,RANK", {"RANK": "4"})):
        done = subprocess.run(
            [sys.executable, "-m", "determined.launch.wrap_rank", rank, "--", "sh", "-c", script],
            env=environment_of(None, **more),
            capture_output=True,
            check=True,
        )
        assert done.stdout == b"[rank=4] one\n[rank=4] three\n"
        assert done.stderr == b"[rank=4] two\n"


def test_off_the_cluster_a_bar_keeps_its_prefix_and_shows_its_last_state(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "gate")
    script = r"printf '30%%\r'; cat gate; printf '99%%\r100%%\nrest'"
    command = [sys.executable, "-m", "determined.launch.wrap_rank", "4", "sh", "-c", script]
    with subprocess.Popen(command, env=environment_of(None), cwd=tmp_path, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"[rank=4] 30%\n", "it is seen while the bar still runs"
        (tmp_path / "gate").write_text("")
        assert process.stdout.read() == b"[rank=4] 100%\n[rank=4] rest\n"


def test_a_rank_is_a_number_or_the_first_variable_that_is_set() -> None:
    assert resolve_rank("12", {}) == 12
    assert resolve_rank("A,B", {"B": "3"}) == 3
    with pytest.raises(ValueError, match="one of which is set"):
        resolve_rank("A,B", {})
    with pytest.raises(ValueError, match="A is 'x'"):
        resolve_rank("A", {"A": "x"})


def test_in_a_stop_the_ranks_end_is_no_failure(tmp_path: Path) -> None:
    run = make_run(tmp_path)
    (run / "control" / "stop.json").write_text('{"grace_seconds": 30, "reason": "killed"}')
    done = subprocess.run([*WRAP, "0", "sh", "-c", "exit 1"], env=environment_of(run), check=False)
    assert done.returncode == 1
    assert [(record["type"], record["code"]) for record in records(run)] == [("rank_ended", 1)]
