"""Ranks that count, and what must have come of a run of theirs."""

from typing import Any

from tests.trainmaster.conftest import wait_until
from tests.trainmaster.stream_server import StreamServer
from trainmaster.paths import RunPaths
from trainmaster.processes import alive, of_run
from trainmaster.runner.state import read_shipped, read_state

RANKS = """
import os, sys, time
spool = os.environ["TRAINMASTER_RUN_DIR"] + "/spool"
files = [open(f"{spool}/rank{rank}.stdout", "ab", buffering=0) for rank in range(3)]
for number in range(1, %d + 1):
    for file in files:
        file.write(b"%%d\\n" %% number)
    time.sleep(%f)
"""


def ranks(count: int, pause: float) -> str:
    return RANKS % (count, pause)


def numbers(count: int) -> list[str]:
    return [str(number) for number in range(1, count + 1)]


def assert_complete(server: StreamServer, count: int) -> None:
    for rank in range(3):
        assert server.texts(f"rank{rank}.stdout") == numbers(count)
        assert {r["r"] for r in server.lines() if r["f"] == f"rank{rank}.stdout"} == {rank}


def finish(server: StreamServer, paths: RunPaths, seconds: float = 60.0) -> dict[str, Any]:
    """The exit record, once it has come and every process of the run and its runner is gone."""
    record: dict[str, Any] = server.wait_for(server.exit, seconds)
    assert server.records()[-1] == record, "the exit record is the last"
    wait_until(lambda: read_shipped(paths)["finished"] and not alive(read_state(paths), "launcher"))
    assert of_run(paths.key) == []
    return record
