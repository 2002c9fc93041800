"""A worker's process over the test database that stops itself (SIGSTOP) in the middle of its work."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.rig.web import ROOT, database_url

_BEGIN = """
import os, signal, django
django.setup()
from django.db import DatabaseError
def freeze(*_):
    print("frozen", flush=True)
    os.kill(os.getpid(), signal.SIGSTOP)
"""


class Frozen:
    """The process, which waits in its `freeze()`."""

    def __init__(self, process: "subprocess.Popen[str]") -> None:
        self._process = process

    def go_on(self) -> str:
        """Let it continue to its end; the last line that it printed."""
        self._process.send_signal(signal.SIGCONT)
        said, _ = self._process.communicate(timeout=120)
        return said.strip().rpartition("\n")[2]


@contextmanager
def frozen_in(work: str, **environment: str) -> Iterator[Frozen]:
    """Run `work`, Python code that calls freeze() where the process is to stop, until it has."""
    variables = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "queue")]),
        "DJANGO_SETTINGS_MODULE": "webui.settings",
        "DATABASE_URL": database_url(),
        "TRAINMASTER_SECRET_KEY": "tests",
        **environment,
    }
    process = subprocess.Popen(
        [sys.executable, "-c", _BEGIN + work], env=variables, cwd=Path("/"), stdout=subprocess.PIPE, text=True
    )
    try:
        assert process.stdout is not None and process.stdout.readline() == "frozen\n"
        os.waitid(os.P_PID, process.pid, os.WSTOPPED | os.WNOWAIT)
        yield Frozen(process)
    finally:
        process.kill()
        process.wait()
