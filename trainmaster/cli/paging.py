"""What is longer than the screen goes through $PAGER, on a terminal only."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
from typing import List

#: leave at once what fits, keep colors, and leave the text on the screen, unless the person has a choice of his own
_LESS = "FRX"
_DEFAULT = "less"


class _Choice:
    wanted = True


def off() -> None:
    """`--no-pager`: everything is printed as it is, in this process."""
    _Choice.wanted = False


def show(text: str) -> None:
    """Print the text; through the pager where a person would have to scroll back for its beginning."""
    program = _pager()
    if not program or len(text.splitlines()) < shutil.get_terminal_size().lines:
        print(text)
        return
    sys.stdout.flush()
    try:
        process = subprocess.Popen(
            program, stdin=subprocess.PIPE, env={"LESS": _LESS, **os.environ}, text=True, errors="replace"
        )
    except OSError:  # no such program: nothing is lost by it
        print(text)
        return
    try:
        process.communicate(text + "\n")
    except KeyboardInterrupt:
        process.wait()
        raise


def _pager() -> List[str]:
    """The pager's command line, empty where there is to be none. PAGER= and PAGER=cat switch it off."""
    if not _Choice.wanted or not (sys.stdout.isatty() and sys.stdin.isatty()):
        return []
    try:
        words = shlex.split(os.environ.get("PAGER", _DEFAULT))
    except ValueError:
        words = []
    return [] if words in ([], ["cat"]) else words
