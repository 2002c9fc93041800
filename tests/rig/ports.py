"""Ports for what a test is about to start."""

import errno
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
        if is_free(port):
            _given.add(port)
            return port
    raise RuntimeError("no free port between 25000 and 32000")


def is_free(port: int, address: str = "") -> bool:
    """Whether nobody has it; also true of an address that this machine does not have."""
    with socket.socket() as attempt:
        attempt.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            attempt.bind((address, port))
        except OSError as error:
            return error.errno != errno.EADDRINUSE
    return True
