"""What passes between this process and one that another account may have stopped: bounded in bytes and in time."""

from __future__ import annotations

import os
import select
import subprocess
import time
from functools import partial
from typing import IO, Dict, Iterable, Optional, Set, Tuple

#: of an answer
_BYTES_MOST = 64 * 1024 * 1024
_PIECE = 1024 * 1024


def read(pipes: Iterable[int], until: Optional[float]) -> Dict[int, Tuple[bytes, bool]]:
    """What comes through each pipe, and whether that is all of it. They are read side by side: one that is silent does
    not keep what writes to another waiting.
    """
    said = {pipe: bytearray() for pipe in pipes}
    poll, left = select.poll(), set(said)
    for pipe in left:
        poll.register(pipe, select.POLLIN)
    full: Set[int] = set()
    while left - full:
        ready = poll.poll(None if until is None else max(0.0, until - time.monotonic()) * 1000)
        if not ready:
            break
        for pipe, _ in ready:
            piece = os.read(pipe, _PIECE)
            said[pipe] += piece
            if not piece:
                left.remove(pipe)
            elif len(said[pipe]) >= _BYTES_MOST:
                full.add(pipe)
            else:
                continue
            poll.unregister(pipe)
    return {pipe: (bytes(text), pipe not in left) for pipe, text in said.items()}


def _write(pipe: int, pieces: Iterable[bytes], seconds: float) -> None:
    """Write all. Raises TimeoutError if nothing is taken for so long."""
    os.set_blocking(pipe, False)
    poll = select.poll()
    poll.register(pipe, select.POLLOUT)
    for piece in pieces:
        rest = memoryview(piece)
        while rest:
            if not poll.poll(seconds * 1000):
                raise TimeoutError
            rest = rest[os.write(pipe, rest) :]


def talk(
    child: subprocess.Popen[bytes], request: bytes, more: Optional[IO[bytes]], seconds: float
) -> Tuple[bytes, bytes]:
    """(stdout, stderr) of the child once it has ended. It has so long to take each piece of what it is told, and, after
    that, to answer. Raises TimeoutError and TimeoutExpired.
    """
    assert child.stdin is not None and child.stdout is not None and child.stderr is not None
    with child.stdin, child.stdout, child.stderr:
        try:
            _write(child.stdin.fileno(), [request], seconds)
            if more is not None:
                _write(child.stdin.fileno(), iter(partial(more.read, _PIECE), b""), seconds)
        except BrokenPipeError:  # it has said no already
            pass
        child.stdin.close()
        until = time.monotonic() + seconds
        output, errors = child.stdout.fileno(), child.stderr.fileno()
        said = read([output, errors], until)
        if not all(whole for _, whole in said.values()):
            raise TimeoutError
        child.wait(max(0.0, until - time.monotonic()))
        return said[output][0], said[errors][0]
