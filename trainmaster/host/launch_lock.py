"""The lock of a run's launch: held from the first look at its folder until state.json names the entrypoint."""

from __future__ import annotations

import contextlib
import fcntl
import os
import time
from pathlib import Path
from typing import Optional

from trainmaster.runner.state import lock_until

_POLL_SECONDS = 0.003


def take(path: Path, seconds: float) -> Optional[int]:
    """A descriptor that holds the lock at `path`, None if another process has held it for so long.

    Whoever held it before may have removed the file.
    """
    until = time.monotonic() + seconds
    while True:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        if not lock_until(descriptor, fcntl.LOCK_EX, until, _POLL_SECONDS):
            os.close(descriptor)
            return None
        with contextlib.suppress(FileNotFoundError):
            if path.stat().st_ino == os.fstat(descriptor).st_ino:
                goes_on(descriptor)
                return descriptor
        os.close(descriptor)


def goes_on(descriptor: int) -> None:
    """The holder of the lock has come further: `held_seconds` counts from now."""
    os.utime(descriptor)


def wait(path: Path, seconds: float) -> bool:
    """True once nobody holds the lock at `path`; False if somebody has for so long."""
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
    except FileNotFoundError:
        return True
    try:
        return lock_until(descriptor, fcntl.LOCK_SH, time.monotonic() + seconds, _POLL_SECONDS)
    finally:
        os.close(descriptor)


def held_seconds(path: Path) -> Optional[float]:
    """For how long a living process has held the lock at `path` without coming further; None if nobody holds it.

    None too where this account may not look.
    """
    try:
        if wait(path, 0.0):
            return None
        return max(0.0, time.time() - path.stat().st_mtime)
    except OSError:
        return None
