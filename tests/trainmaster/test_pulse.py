"""What a host says of its ranks: how far they are, which of them stands still, and their stacks."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.trainmaster.conftest import TestHost, wait_until
from trainmaster.host.stacks import answer_file
from trainmaster.paths import RunPaths
from trainmaster.processes import marked
from trainmaster.rank_processes import RankProcesses, rank_in
from trainmaster.runner.pulse import Pulse

#: Starts ranks as a user's own launcher does; each enters a collective of the SDK again and again.
LAUNCHER = """
import os, subprocess, sys
size = int(sys.argv[1])
ranks = [subprocess.Popen([sys.executable, "-m", "trainmaster.launch.wrap_rank", str(rank), sys.executable,
                           "worker.py", str(rank), str(size)]) for rank in range(size)]
sys.exit(max(rank.wait() for rank in ranks))
"""
STEPPING = """
import sys, time
import determined as det
rank, size = int(sys.argv[1]), int(sys.argv[2])
distributed = det.core.DistributedContext(rank=rank, size=size, local_rank=rank, local_size=size,
                                          cross_rank=0, cross_size=1)
with det.core.init(distributed=distributed) as context:
    for step in range(1, 100000):
        time.sleep(0.05)
        distributed.allgather(step)
        if rank == 0:
            context.train.report_training_metrics(step, {"loss": 1.0})
            print("step", step, flush=True)
"""


@contextmanager
def gang(host: TestHost, size: int, worker: str = STEPPING) -> Iterator[tuple[RunPaths, Pulse]]:
    """A run with so many ranks, and a pulse that is taken by hand."""
    spec = host.spec(["python3", "launch.py", str(size)])
    paths, answer = host.launch(
        ["python3", "launch.py", str(size)],
        {"launch.py": LAUNCHER, "worker.py": worker},
        slots=[{"index": index, "uuid": f"cpu-{index}", "kind": "cpu"} for index in range(size)],
    )
    assert answer.get("state") == "launched", answer
    yield paths, Pulse(paths, {**spec, "run_key": paths.key})  # type: ignore[typeddict-item]


def looked(pulse: Pulse, now: float) -> dict[int, dict[str, Any]]:
    pulse.look(now)
    return {facts["rank"]: facts for facts in pulse.facts()}


def pid_of(paths: RunPaths, rank: int) -> int:
    return RankProcesses(paths.key, alone=True).look()[rank][0].pid


def test_every_rank_of_a_gang_that_only_its_chief_reports_for_has_a_sign_of_its_own(host: TestHost) -> None:
    with gang(host, 3) as (paths, pulse):
        wait_until(lambda: all(paths.sign(rank).exists() for rank in range(3)))
        wait_until(lambda: looked(pulse, 0.0).get(0, {}).get("step", 0) > 3)
        found = looked(pulse, 1.0)
        assert sorted(found) == [0, 1, 2]
        assert "step" not in found[1]
        wait_until(lambda: looked(pulse, 1.0)[1]["calls"] > 3)
        before = found[2]["calls"]
        wait_until(lambda: looked(pulse, 2.0)[2]["calls"] > before)


def test_a_stopped_rank_is_told_from_the_peers_that_wait_for_it(host: TestHost) -> None:
    with gang(host, 3) as (paths, pulse):
        wait_until(lambda: looked(pulse, 0.0).get(0, {}).get("step", 0) > 3)
        os.kill(pid_of(paths, 2), signal.SIGSTOP)
        wait_until(lambda: looked(pulse, 1.0)[2]["state"] == "T")

        def waits() -> bool:
            found = looked(pulse, 2.0)
            return bool(found[0]["waits"] and found[1]["waits"])

        wait_until(waits)
        pulse.look(3.0)
        assert [facts["state"] for facts in pulse.facts()][:2] != ["T", "T"]
        os.kill(pid_of(paths, 2), signal.SIGCONT)
        wait_until(lambda: looked(pulse, 4.0)[2]["state"] != "T")


LEAVES_ONE = """
import sys, time
if sys.argv[1] != "1":
    sys.exit(0)
while True:
    print("on", flush=True)
    time.sleep(0.1)
"""


def test_ranks_that_have_ended_are_told_from_the_one_that_goes_on(host: TestHost) -> None:
    with gang(host, 3, LEAVES_ONE) as (_, pulse):
        moments = iter(range(1000))

        def two_have_ended() -> bool:
            found = looked(pulse, float(next(moments)))
            return [rank for rank in sorted(found) if found[rank]["state"] != "ended"] == [1] and len(
                found
            ) == 3

        wait_until(two_have_ended)
        found = looked(pulse, float(next(moments)))
        assert sorted(found) == [0, 1, 2] and found[1]["wrote_seconds"] < 60
        assert set(found[0]) == {"rank", "state", "state_seconds"}
        assert sorted(pulse.work()[1]) == [1]


def test_the_runner_ships_the_pulse_with_its_heartbeats(host: TestHost) -> None:
    with gang(host, 2):
        wait_until(lambda: any(len(beat.get("pulse", ())) == 2 for beat in host.server.heartbeats))


def test_a_rank_shows_its_stack_while_it_hangs_and_lives_on(host: TestHost) -> None:
    hanging = """
import sys, threading
def waits_for_ever():
    print("ready", flush=True)
    threading.Event().wait()
waits_for_ever()
"""
    with gang(host, 2, hanging) as (paths, _):
        wait_until(
            lambda: paths.rank_stream(1, "stdout").exists() and paths.rank_stream(1, "stdout").stat().st_size
        )
        answer = host.verb("stack", {"runs": {paths.key: {"ranks": [1]}}})["runs"][paths.key]["ranks"]["1"]
        assert "waits_for_ever" in answer["text"], answer
        again = host.verb("stack", {"runs": {paths.key: {"ranks": None}}})["runs"][paths.key]["ranks"]
        assert sorted(again) == ["0", "1"] and all("waits_for_ever" in one["text"] for one in again.values())
        assert again["1"]["text"].count("in waits_for_ever") == 1 and again["1"]["pid"] == answer["pid"]


def test_a_stopped_rank_is_not_signalled_and_says_so(host: TestHost) -> None:
    with gang(host, 2) as (paths, _):
        wait_until(lambda: paths.sign(1).exists())
        pid = pid_of(paths, 1)
        os.kill(pid, signal.SIGSTOP)
        wait_until(lambda: Path(f"/proc/{pid}/stat").read_text().split()[2] == "T")
        answer = host.verb("stack", {"runs": {paths.key: {"ranks": [1]}}})["runs"][paths.key]["ranks"]["1"]
        assert answer["state"] == "T" and "is stopped" in answer.get(
            "message", answer.get("text", "is stopped")
        )
        os.kill(pid, signal.SIGCONT)


def test_what_has_no_handler_is_never_signalled(host: TestHost) -> None:
    deaf = "import os; os.execv('/bin/sleep', ['sleep', '300'])"
    with gang(host, 2, deaf) as (paths, _):
        wait_until(lambda: 1 in RankProcesses(paths.key, alone=True).look())
        pid = pid_of(paths, 1)
        wait_until(lambda: b"sleep" in Path(f"/proc/{pid}/cmdline").read_bytes())
        answer = host.verb("stack", {"runs": {paths.key: {"ranks": [1]}}})["runs"][paths.key]["ranks"]["1"]
        assert "has no handler" in answer["message"]
        assert Path(f"/proc/{pid}/cmdline").exists()
        missing = host.verb("stack", {"runs": {paths.key: {"ranks": [7]}}})["runs"][paths.key]["ranks"]["7"]
        assert missing["message"] == "No process of rank 7 runs here."


def test_a_single_process_of_a_run_without_ranks_is_rank_0(host: TestHost) -> None:
    paths = host.run_script("import time\nprint('ready', flush=True)\ntime.sleep(300)\n")
    wait_until(lambda: paths.launcher_stream("stdout").stat().st_size)
    answer = host.verb("stack", {"runs": {paths.key: {"ranks": None}}})["runs"][paths.key]["ranks"]
    assert list(answer) == ["0"] and "job.py" in answer["0"]["text"]


def test_a_stranger_that_catches_the_signal_is_not_taken_for_one_of_ours(tmp_path: Path) -> None:
    child = subprocess.Popen(
        [sys.executable, "-c", "import signal, sys\nsignal.signal(signal.SIGRTMIN + 11, print)\n"
         "print('ready', flush=True)\nsys.stdin.read()"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )  # fmt: skip
    assert child.stdout is not None and child.stdout.readline()
    assert answer_file(RunPaths(tmp_path), child.pid) is None
    child.communicate()


@pytest.mark.parametrize(
    ("variables", "rank"),
    [
        ([b"RANK=3"], 3),
        ([b"RANK=3", b"TRAINMASTER_RANK=5"], 5),
        ([b"OMPI_COMM_WORLD_RANK=2", b"LOCAL_RANK=9"], 2),
        ([b"RANK=chief"], None),
        ([], None),
    ],
)
def test_a_rank_is_read_from_the_variables_of_common_launchers(
    variables: list[bytes], rank: int | None
) -> None:
    assert rank_in(variables) == rank


def test_a_sign_that_is_torn_or_strange_costs_nothing(host: TestHost) -> None:
    with gang(host, 1) as (paths, pulse):
        wait_until(lambda: 0 in looked(pulse, 0.0))
        paths.sign(5).write_bytes(b'{"step": 1, "ca')
        paths.sign(6).write_text(json.dumps([1]))
        assert pulse._sign(5) == {} and pulse._sign(6) == {}
        assert marked()[paths.key]


@pytest.mark.survive(43)
@pytest.mark.parametrize("path", ["file", "pipe"])
def test_what_a_job_writes_as_its_sign_neither_swells_a_heartbeat_nor_stands_for_what_was_seen(
    tmp_path: Path, path: str
) -> None:
    paths = RunPaths(tmp_path)
    paths.sign(0).parent.mkdir(parents=True)
    pulse = Pulse(paths, {"members": 1, "slots": []})  # type: ignore[typeddict-item]
    if path == "pipe":
        os.mkfifo(paths.sign(0))
        assert pulse._sign(0) == {}
        return
    paths.sign(0).write_text(json.dumps({"step": 3, "doing": "x" * 256 * 1024}))
    assert pulse._sign(0) == {}
    paths.sign(0).write_text('{"step": 3, "rank": 7, "pid": 1, "state": "T", "calls": true, "beats": 2}')
    assert pulse._sign(0) == {"step": 3, "beats": 2}
