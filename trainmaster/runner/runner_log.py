"""What host processes of a run say in .runner.log, which stays on the host."""

from __future__ import annotations

import contextlib
import os
import sys
import time
from pathlib import Path


def say(sentence: str) -> None:
    """A line for .runner.log. On a full disk it is lost, and no more than that."""
    with contextlib.suppress(OSError):
        sys.stderr.write(f"{time.strftime('%Y-%m-%d %H:%M:%S')} {sentence}\n")
        sys.stderr.flush()


def open_log(path: Path) -> int:
    """A descriptor for the log at `path`; /dev/null where the job has put something else there.

    It never waits, as opening a pipe would, so that host processes of a run can always be started.
    """
    try:
        return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC | os.O_NONBLOCK, 0o600)
    except OSError:
        return os.open(os.devnull, os.O_WRONLY | os.O_CLOEXEC)
