"""What host processes of a run say in .runner.log, which stays on the host."""

from __future__ import annotations

import contextlib
import sys
import time


def say(sentence: str) -> None:
    """A line for .runner.log. On a full disk it is lost, and no more than that."""
    with contextlib.suppress(OSError):
        sys.stderr.write(f"{time.strftime('%Y-%m-%d %H:%M:%S')} {sentence}\n")
        sys.stderr.flush()
