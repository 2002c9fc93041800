"""One rank fails: the gang is stopped, nothing is left, and the trial says which rank, its code and last words."""

import time

import pytest

from tests.rig.stack import LAUNCHER, Stack, config

pytestmark = pytest.mark.hosts

WORKER = """
import sys, time
rank = int(sys.argv[1])
print("ready", flush=True)
if rank == 2:
    print("the last words of rank 2", flush=True)
    sys.exit(3)
time.sleep(300)
"""
STOPPED_WITHIN_SECONDS = 15


def test_one_failing_rank_stops_its_gang_and_is_named(stack: Stack) -> None:
    experiment = stack.submit({"launch.py": LAUNCHER, "worker.py": WORKER}, config(4))
    stack.wait_lines(experiment, 5)
    begun = time.monotonic()
    assert stack.wait_end(experiment, STOPPED_WITHIN_SECONDS) == "STATE_ERROR"
    assert time.monotonic() - begun < STOPPED_WITHIN_SECONDS
    stack.assert_nothing_runs(stack.run_keys(experiment))
    trial = stack.trial(experiment)

    def told() -> bool:
        words = " ".join(record["log"] for record in stack.records(trial["id"]))
        return "rank 2" in words and "exit code 3" in words

    stack.wait(told, 10, "the log to name the rank and its code")
    assert stack.lines_by_rank(experiment)[2][-1] == "the last words of rank 2"


def test_max_restarts_restarts_and_counts(stack: Stack) -> None:
    experiment = stack.submit(
        {"worker.py": "raise SystemExit(7)"}, config(1, "python3 worker.py", max_restarts=2)
    )
    assert stack.wait_end(experiment) == "STATE_ERROR"
    assert stack.trial(experiment)["restarts"] == 2


def test_a_kill_leaves_nothing_even_of_a_stubborn_job(stack: Stack) -> None:
    stubborn = """
import os, signal, subprocess, sys, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
subprocess.Popen([sys.executable, "-c", "import time; time.sleep(300)"], start_new_session=True)
print("line 1", flush=True)
time.sleep(300)
"""
    experiment = stack.submit(
        {"worker.py": stubborn}, config(1, "python3 -m determined.launch.wrap_rank 0 python3 worker.py")
    )
    stack.wait_lines(experiment, 1)
    keys = stack.run_keys(experiment)
    stack.post(f"/api/v1/experiments/{experiment}/kill")
    assert stack.wait_end(experiment, 40) == "STATE_CANCELED"
    stack.assert_nothing_runs(keys)
