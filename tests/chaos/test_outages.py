"""Faults that last or come again and again while a gang of four ranks counts. At the end of each: the true state, no
process left, no slot held, and every line of every rank stored once and in order."""

import os
import random
import re
import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest
import redis

from tests.rig import light_gang
from tests.rig.hosts import Host
from tests.rig.pace import wait_until
from tests.rig.stack import LAUNCHER, Json, Stack, config, counting

pytestmark = [pytest.mark.chaos, pytest.mark.hosts]

PAUSE_SECONDS = 0.2
END_LIMIT_SECONDS = 180.0


def begin(stack: Stack, seconds: float) -> tuple[int, int]:
    """A gang that counts for about so long: its experiment and its last line."""
    for host in stack.hosts:
        stack.wait(lambda host=host: stack.host_state(host.name) == "ready", 60, f"{host.name} to be ready")
    last = max(20, int(seconds / PAUSE_SECONDS))
    experiment = stack.submit(counting(last, PAUSE_SECONDS), config(4))
    stack.wait_lines(experiment, 8)
    return experiment, last


def assert_unharmed(stack: Stack, experiment: int, last: int, seconds: float = 0.0) -> None:
    """`seconds`: how long it still has to count."""
    assert stack.wait_end(experiment, seconds + END_LIMIT_SECONDS) == "STATE_COMPLETED"
    assert stack.trial(experiment)["restarts"] == 0
    assert len(attempts(stack, experiment)) == 1
    stack.assert_complete(experiment, last)
    stack.assert_nothing_runs(stack.run_keys(experiment))
    stack.wait_free()


def attempts(stack: Stack, experiment: int) -> list[Json]:
    task = stack.trial(experiment)["taskId"]
    return list(stack.get(f"/api/v1/tasks/{task}")["task"]["allocations"])


def passes(seconds: float) -> None:
    """The fault lasts so long: here time itself is what the test is about."""
    threading.Event().wait(seconds)


def patiently(act: Callable[[], Json]) -> Json:
    """Try again while a part of the server is away."""
    until = time.monotonic() + 60
    while True:
        try:
            return act()
        except OSError:
            if time.monotonic() > until:
                raise
            passes(0.5)


@pytest.mark.survive(1)
@pytest.mark.parametrize("minutes", [1, 10])
def test_a_link_that_is_cut_for_minutes(stack: Stack, minute: float, minutes: int) -> None:
    experiment, last = begin(stack, minutes * minute / 2 + 10)
    host = stack.hosts[1]
    host.cut()
    passes(minutes * minute)
    assert stack.experiment(experiment)["state"] == "STATE_RUNNING", "the silent host's ranks may still run"
    host.restore()
    assert_unharmed(stack, experiment, last)
    stack.wait(lambda: stack.host_state(host.name) == "ready", 60, "the host to be back")


@pytest.mark.survive(1)
def test_sshd_is_stopped_and_started_25_times(stack: Stack) -> None:
    experiment, last = begin(stack, 60)
    for number in range(25):
        host = stack.hosts[number % 2]
        host.stop_sshd()
        host.start_sshd()
        if number % 5 == 4:
            stack.wait(host.sessions, 60, f"the server to log in again on {host.name}")
    assert_unharmed(stack, experiment, last, 60)


@pytest.mark.survive(23)
def test_postgresql_is_stopped_at_once_five_times(stack: Stack) -> None:
    experiment, last = begin(stack, 40)
    for _ in range(5):
        former = stack.server.children()["postgres"]
        former.signal(signal.SIGQUIT)  # as `pg_ctl stop -m immediate` does
        stack.server.wait_replaced("postgres", former, 90)
        patiently(lambda: stack.experiment(experiment))
    assert_unharmed(stack, experiment, last, 40)


def flush(stack: Stack) -> None:
    with redis.Redis(unix_socket_path=str(stack.server.data / "redis" / "redis.sock")) as connection:
        connection.flushall()


@pytest.mark.survive(22)
@pytest.mark.parametrize("moment", ["launch", "run", "stop"])
def test_redis_forgets_everything(stack: Stack, moment: str) -> None:
    last = 30
    experiment = stack.submit(counting(last, PAUSE_SECONDS), config(4))
    if moment == "launch":
        for _ in range(10):
            flush(stack)
            passes(0.1)
    stack.wait_lines(experiment, 8)
    keys = stack.run_keys(experiment)
    if moment == "stop":
        stack.post(f"/api/v1/experiments/{experiment}/cancel")
    flush(stack)
    if moment == "stop":
        assert stack.wait_end(experiment) == "STATE_CANCELED"
        stack.assert_nothing_runs(keys)
        stack.wait_free()
    else:
        assert_unharmed(stack, experiment, last)
    after = stack.submit(counting(1, 0), config(1))
    assert stack.wait_end(after) == "STATE_COMPLETED"


#: Counts slowly in the first attempt, fast in the next.
SLOW_THEN_FAST = """
import os, time
first = os.environ["TRAINMASTER_RUN"].rsplit(".", 2)[1] == "1"
for number in range(1, 1001 if first else 21):
    print(f"line {number}", flush=True)
    time.sleep(0.2 if first else 0.02)
"""


@pytest.mark.survive(8)
def test_a_host_that_reboots_starts_the_gang_again_without_counting_a_restart(stack: Stack) -> None:
    experiment = stack.submit({"launch.py": LAUNCHER, "worker.py": SLOW_THEN_FAST}, config(4))
    stack.wait_lines(experiment, 8)
    keys = stack.run_keys(experiment)
    stack.hosts[1].reboot()
    assert stack.wait_end(experiment, END_LIMIT_SECONDS) == "STATE_COMPLETED"
    assert len(attempts(stack, experiment)) == 2
    assert stack.trial(experiment)["restarts"] == 0  # and max_restarts is 0
    stack.assert_nothing_runs([*keys, *stack.run_keys(experiment)])
    stack.wait_free()
    expected = [f"line {number}" for number in range(1, 21)]
    for rank, lines in stack.lines_by_rank(experiment).items():
        assert lines[-20:] == expected, f"rank {rank}: {lines[-25:]}"
        assert lines[:-20] == [f"line {number}" for number in range(1, len(lines) - 19)]


#: The ranks meet at every step, until one says whom it misses.
MEETING = """
import sys, time
import determined as det

rank, size, local, local_size, here, hosts = map(int, sys.argv[1:])
distributed = det.core.DistributedContext(
    rank=rank, size=size, local_rank=local, local_size=local_size, cross_rank=here, cross_size=hosts,
    chief_ip=det.get_cluster_info().container_addrs[0])
while True:
    begun = time.monotonic()
    try:
        distributed.allgather(rank)
    except det.core.PeerLost as lost:
        print(f"after {time.monotonic() - begun:.0f} s: {lost}", flush=True)
        raise
    print("met", flush=True)
    time.sleep(0.2)
"""


@pytest.mark.survive(11)
def test_a_host_that_vanishes_is_named_by_the_ranks_of_the_others(stack: Stack) -> None:
    experiment = stack.submit({"launch.py": light_gang.LAUNCHER, "worker.py": MEETING}, config(4))
    stack.wait_lines(experiment, 8)
    gone = stack.hosts[1]
    (member,) = [
        index
        for index, key in enumerate(stack.run_keys(experiment))
        if (gone.workdir / "runs" / key).exists()
    ]

    def named() -> list[tuple[int, int]]:
        """(rank, seconds that its peers waited) of each rank that was missed."""
        lines = "\n".join(line for lines in stack.lines_by_rank(experiment).values() for line in lines)
        found = re.findall(r"^after (\d+) s: .*Rank (\d+) \([^)]*\) was lost", lines, re.MULTILINE)
        return [(int(rank), int(seconds)) for seconds, rank in found]

    gone.cut()
    try:
        stack.wait(named, 120, "the ranks of the other host to say whom they miss")
        for rank, seconds in named():
            assert rank // 2 == member and seconds < 75
    finally:
        gone.restore()
    stack.wait(lambda: stack.host_state(gone.name) == "ready", 60, "the host to be back")
    assert stack.wait_end(experiment, END_LIMIT_SECONDS) == "STATE_ERROR"
    stack.assert_nothing_runs(stack.run_keys(experiment))


@pytest.mark.survive(10)
@pytest.mark.parametrize(("skew", "seconds"), [("+10m", 600), ("-10m", -600)])
def test_the_doctor_measures_a_clock_that_is_wrong_by_minutes(stack: Stack, skew: str, seconds: int) -> None:
    """No job runs there: under libfaketime Python's own sleeps fail with EINVAL, which no wrong clock does."""
    library = next(Path("/usr/lib").glob("*/faketime/libfaketime.so.1"), None)
    if library is None:
        pytest.skip("needs faketime")
    host = stack.hosts[1]
    wrong_clock(host, library, skew)
    try:
        stack.post(f"/api/v1/hosts/{host.name}/doctor")
        stack.wait(lambda: clock_of(stack, host)["state"] == "warn", 60, "the doctor to see the clock")
        seen = stack.get(f"/api/v1/hosts/{host.name}")["host"]["clockSkewSeconds"]
        assert abs(seen - seconds) < 10
    finally:
        host.stop_sshd()
        host.start_sshd()
        stack.post(f"/api/v1/hosts/{host.name}/doctor")
        stack.wait(lambda: clock_of(stack, host)["state"] == "ok", 60, "the doctor to see the right clock")


def clock_of(stack: Stack, host: Host) -> Json:
    checks = stack.get(f"/api/v1/hosts/{host.name}")["host"]["doctor"]["checks"]
    return next((check for check in checks if check["name"] == "clock"), {"state": ""})


def wrong_clock(host: Host, library: Path, skew: str) -> None:
    """Every session of this host's sshd gets another time from then on."""
    file = host.folder / "sshd_config"
    right = file.read_text()
    # a clock that is set wrong is no clock that runs wrong: waits, which use the monotonic one, are as ever
    fake = f"LD_PRELOAD={library} FAKETIME={skew} DONT_FAKE_MONOTONIC=1 FAKETIME_DONT_FAKE_MONOTONIC=1"
    file.write_text(right.replace("SetEnv PATH=", f"SetEnv {fake} PATH="))
    try:
        host.stop_sshd()
        host.start_sshd()
    finally:
        file.write_text(right)  # sshd has read it


@pytest.mark.survive(6, 25)
def test_random_parts_are_killed_every_few_seconds(stack: Stack, minute: float) -> None:
    seconds = max(20.0, 3 * minute)
    seed = int(os.environ.get("CHAOS_SEED") or time.time())
    print(f"CHAOS_SEED={seed}")
    chance = random.Random(seed)
    experiment, last = begin(stack, seconds)
    keys = stack.run_keys(experiment)
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        victim = chance.choice(["web", "worker", "redis", "postgres", "runner"])
        if victim == "runner":
            for pid in runners_of(chance.choice(keys)):
                os.kill(pid, signal.SIGKILL)
        elif victim in stack.server.children():
            stack.server.kill_part(victim)
        passes(chance.uniform(2, 6))
    wait_until(lambda: all(child.alive() for child in stack.server.children().values()), 60)
    assert_unharmed(stack, experiment, last, seconds)


def runners_of(run_key: str) -> list[int]:
    """Pids of the process that ships the run's log; it does not carry the run's marker."""
    found = []
    for file in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            words = file.read_bytes().split(b"\0")
        except OSError:
            continue
        if b"ship" in words and any(run_key.encode() in word for word in words):
            found.append(int(file.parent.name))
    return found
