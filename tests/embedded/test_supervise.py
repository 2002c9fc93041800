"""A child that is frozen counts as one that has died."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from embedded import processes, supervise
from embedded.lock import Register
from embedded.supervise import ServerPart, Supervisor
from tests.rig import pace

#: Lives once to give a sign and freeze; the second one goes on giving signs.
FREEZES = """
import os, pathlib, signal, sys, time
sign, begun = map(pathlib.Path, sys.argv[1:])
first = not begun.exists()
begun.touch()
while True:
    sign.touch()
    if first:
        os.kill(os.getpid(), signal.SIGSTOP)
    time.sleep(0.05)
"""


@pytest.mark.survive(21)
def test_a_frozen_child_is_ended_and_started_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(supervise, "FIRST_SIGN_SECONDS", 60.0)
    sign, begun, said = tmp_path / "sign", tmp_path / "begun", list[str]()
    part = ServerPart(
        "worker",
        [sys.executable, "-c", FREEZES, str(sign), str(begun)],
        stop_signal=signal.SIGKILL,
        sign=sign,
        sign_limit_seconds=3.0,
    )
    with Supervisor(tmp_path, Register(tmp_path), said.append) as supervisor:
        supervisor.start(part)

        def goes_on() -> bool:
            again = any("starting it again" in line for line in said)
            return again and sign.exists() and time.time() - sign.stat().st_mtime < 1.0

        supervisor.serve(goes_on, limit_seconds=60.0)
        assert goes_on(), said
    assert said[0] == "worker has shown no sign of life for 3 s; stopping it."


#: Works for some seconds, if it is told to, and then answers by making a file. Its name is not UTF-8, as any process of
#: the machine may choose to be called.
ANSWERS = """
import pathlib, sys, time
pathlib.Path("/proc/self/comm").write_bytes(b"(\\xff)")
answer, seconds, works = pathlib.Path(sys.argv[1]), float(sys.argv[2]), sys.argv[3] == "works"
until = time.monotonic() + seconds
while time.monotonic() < until:
    if not works:
        time.sleep(0.05)
answer.touch()
time.sleep(600)
"""


@pytest.mark.parametrize("works", [True, False])
def test_a_part_is_waited_for_as_long_as_it_works(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, works: bool
) -> None:
    monkeypatch.setattr(supervise, "WORK_CHECK_SECONDS", 0.2)
    monkeypatch.setattr(supervise, "WAITING_TOLD_SECONDS", 2.0)
    limit, said, answer = 1.0 * pace.factor(), list[str](), tmp_path / "answer"
    command = [sys.executable, "-c", ANSWERS, str(answer), str(3 * limit), "works" if works else "idles"]
    with Supervisor(tmp_path, Register(tmp_path), said.append) as supervisor:
        supervisor.start(ServerPart("web", command))
        if works:
            supervisor.wait_ready("web", answer.exists, limit)
            assert said[0].startswith("Waiting for web, which has been starting for ")
        else:
            with pytest.raises(supervise.CannotStart, match="web did not answer within"):
                supervisor.wait_ready("web", answer.exists, limit)


def test_processor_time_is_counted_beside_processes_of_any_name() -> None:
    rename = "import ctypes, time; ctypes.CDLL(None).prctl(15, b'\\xff)\\xfe ('); print(flush=True); time.sleep(60)"
    oddly_named = subprocess.Popen([sys.executable, "-c", rename], stdout=subprocess.PIPE)
    try:
        assert oddly_named.stdout is not None
        oddly_named.stdout.readline()
        assert processes.session_seconds(os.getsid(0)) > 0
    finally:
        oddly_named.kill()
        oddly_named.wait()
