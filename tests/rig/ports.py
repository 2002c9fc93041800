"""Ports for what a test is about to start."""

import contextlib
import os
import socket
import time

_given: set[int] = set()


def free_port() -> int:
    """A port below the ephemeral range and above those that gangs lease, another one each time it is asked.

    No connection that anybody makes meanwhile can take it, as it can one that the system has chosen.
    """
    start = 25_000 + (os.getpid() * 7 + int(time.monotonic() * 1000)) % 6_000
    for port in sorted(set(range(start, 32_000)) - _given):  # one that was given may not be in use yet
        with socket.socket() as attempt:
            attempt.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            with contextlib.suppress(OSError):
                attempt.bind(("", port))
                _given.add(port)
                return port
    raise RuntimeError("no free port between 25000 and 32000")
