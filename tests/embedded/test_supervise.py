"""A child that is frozen counts as one that has died."""

import signal
import sys
import time
from pathlib import Path

import pytest

from embedded import supervise
from embedded.lock import Register
from embedded.supervise import ServerPart, Supervisor

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
