"""One rank fails: the gang is stopped, nothing is left, and the trial says which rank, its code and last words."""

import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import pytest
from django.conf import settings

from jobs import ports
from tests.rig.hosts import Host
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


@pytest.mark.survive(11)
def test_one_failing_rank_stops_its_gang_and_is_named(stack: Stack) -> None:
    experiment = stack.submit({"launch.py": LAUNCHER, "worker.py": WORKER}, config(4))
    last = "the last words of rank 2"  # its peers may be stopped before they have said a thing
    stack.wait(
        lambda: last in stack.lines_by_rank(experiment).get(2, []), 180, "the failing rank's last words"
    )
    assert stack.wait_end(experiment) == "STATE_ERROR", "long before its peers would have ended"
    stack.assert_nothing_runs(stack.run_keys(experiment))
    trial = stack.trial(experiment)

    def told() -> bool:
        words = " ".join(record["log"] for record in stack.records(trial["id"]))
        return "rank 2" in words and "exit code 3" in words

    stack.wait(told, 60, "the log to name the rank and its code")
    assert stack.lines_by_rank(experiment)[2][-1] == last


def test_max_restarts_restarts_and_counts(stack: Stack) -> None:
    experiment = stack.submit(
        {"worker.py": "raise SystemExit(7)"}, config(1, "python3 worker.py", max_restarts=2)
    )
    assert stack.wait_end(experiment) == "STATE_ERROR"
    assert stack.trial(experiment)["restarts"] == 2


@pytest.mark.survive(12)
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
    assert stack.wait_end(experiment) == "STATE_CANCELED"
    stack.assert_nothing_runs(keys)


#: Fails once another program listens on the port that the next attempt is going to be leased.
FAILS_ONCE = """
import os, socket, time
first, size = {first}, {size}
port = int(os.environ["C10D_PORT"])
after = first + (port - first + 2) % size
if os.environ["DET_ALLOCATION_ID"].endswith(".1"):
    print(os.environ["DET_AGENT_ID"], after, flush=True)
    while True:
        try:
            socket.create_connection(("127.0.0.1", after)).close()
            raise SystemExit(7)
        except ConnectionRefusedError:
            time.sleep(0.1)
print("another port")
"""
LISTEN = (
    "import socket, sys; s = socket.create_server(('', {port})); print('up', flush=True); sys.stdin.read()"
)


@contextmanager
def listener(host: Host, port: int) -> Iterator[None]:
    """A program of the host's own on that port."""
    command = [*host.ssh(), f'python3 -c "{LISTEN.format(port=port)}"']
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None and process.stdout.readline() == b"up\n"
        yield
        assert process.stdin is not None
        process.stdin.close()


@pytest.mark.survive(16)
def test_a_taken_port_is_exchanged_for_another_and_counts_no_restart(stack: Stack) -> None:
    first = settings.PORT_LEASE_FIRST
    worker = FAILS_ONCE.format(first=first, size=ports.for_meetings().start - first)
    wrapped = "python3 -m determined.launch.wrap_rank 0 python3 worker.py"
    experiment = stack.submit({"worker.py": worker}, config(1, wrapped, max_restarts=1))
    stack.wait_lines(experiment, 1)
    name, port = stack.lines_by_rank(experiment)[0][0].split()
    with ExitStack() as listeners:
        for host in sorted(stack.hosts, key=lambda host: host.name == name):  # its own host the last
            if host.isolated or host.name == name:  # else they are one machine
                listeners.enter_context(listener(host, int(port)))
        assert stack.wait_end(experiment) == "STATE_COMPLETED"
    trial = stack.trial(experiment)
    assert trial["restarts"] == 1
    log = [record["log"] for record in stack.records(trial["id"])]
    assert any(f"port {port} of this run is in use by another program" in line for line in log)
    assert "Queued again: a leased port was already in use." in " ".join(log)
    assert stack.lines_by_rank(experiment)[0][-1] == "another port"
