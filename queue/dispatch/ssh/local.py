"""The host named `local`: the same commands as over SSH, run by this process on this very machine."""

from __future__ import annotations

import os
import signal
import subprocess

from dispatch.ssh.contact_errors import Unreachable
from dispatch.ssh.ssh_session import KEEP_STDERR_BYTES, CommandAnswer

#: What a login would have. All else in the server's environment is its own business (secrets among it).
_KEPT = {"HOME", "USER", "LOGNAME", "SHELL", "PATH", "LANG", "TZ", "TMPDIR", "LD_LIBRARY_PATH"}


def run(command: str, stdin: bytes = b"", *, timeout_seconds: float = 30) -> CommandAnswer:
    """Run `command` with /bin/sh in a session of its own. Raises Unreachable after `timeout_seconds`."""
    process = subprocess.Popen(
        ["/bin/sh", "-c", command],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
        env=environment(),
        cwd="/",
    )
    try:
        stdout, stderr = process.communicate(stdin, timeout_seconds)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
        raise Unreachable(
            f"This machine did not answer within {timeout_seconds:g} s.", delivered=True
        ) from None
    code = process.returncode
    return CommandAnswer(code if code >= 0 else 128 - code, stdout, stderr[-KEEP_STDERR_BYTES:])


def environment() -> dict[str, str]:
    """What commands on this machine see of the server's environment."""
    return {name: value for name, value in os.environ.items() if name in _KEPT or name.startswith("LC_")}
