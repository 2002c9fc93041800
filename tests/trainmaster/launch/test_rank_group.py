"""What a launch module sees to itself, whatever the launcher does."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.trainmaster.conftest import wait_until
from tests.trainmaster.made_run import environment_of, make_run, records

#: A launcher that waits for all its ranks and never stops one.
PROGRAM = """
import os, sys
from trainmaster.launch.rank_group import rank_command, run
launcher = 'RANK=0 "$@" & one=$!; RANK=1 "$@" || RANK=1 "$@"; wait $one'
command = ["sh", "-c", launcher, "sh", *rank_command([sys.argv[1]])]
sys.exit(run(command, os.environ, slow_to_stop=sys.argv[2] == "ends"))
"""


def started(run: Path, script: str, how: str, **more: str) -> "subprocess.Popen[bytes]":
    worker = run.parent / "worker.py"
    worker.write_text("import os, pathlib, signal, sys, time\nrank = int(os.environ['RANK'])\n" + script)
    command = [sys.executable, "-c", PROGRAM, str(worker), how]
    return subprocess.Popen(command, env=environment_of(run, **more), start_new_session=True)


@pytest.mark.survive(11)
def test_the_peers_of_a_failed_rank_are_ended_once_where_the_launcher_does_not(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", slots=2)
    script = """
if rank == 1:
    while not pathlib.Path(sys.argv[0]).with_name("ready").exists(): time.sleep(0.02)
    sys.exit(3)
signal.signal(signal.SIGTERM, lambda *_: print("told", flush=True))
pathlib.Path(sys.argv[0]).with_name("ready").touch()
while True: time.sleep(100)
"""
    process = started(run, script, "ends", TRAINMASTER_PEER_GRACE_SECONDS="1")
    assert process.wait(60) == 3
    assert (run / "spool/rank0.stdout").read_text() == "told\n"
    assert [(record["type"], record["code"]) for record in records(run, 0)] == [("rank_ended", 137)]


def test_a_rank_that_its_launcher_has_started_again_is_stopped_like_any_other(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", slots=2)
    script = """
tries = pathlib.Path(sys.argv[0]).with_name(f"tries{rank}")
if rank == 1 and not tries.exists():
    tries.touch()
    sys.exit(1)
signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
print("ready", flush=True)
while True: time.sleep(100)
"""
    process = started(run, script, "leaves")
    streams = [run / f"spool/rank{rank}.stdout" for rank in range(2)]
    wait_until(lambda: all(path.exists() and path.read_text() == "ready\n" for path in streams))
    os.killpg(process.pid, signal.SIGTERM)
    assert process.wait(60) == 0
