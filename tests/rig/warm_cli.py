"""The command line run by a process that has imported it already: a start of Python costs as much as most commands.

What starts Python itself (the first line of a program, its exit by a signal) is tested by commands that are started as
ever.
"""

from __future__ import annotations

import functools
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tests.rig import forks

ROOT = Path(__file__).resolve().parent.parent.parent
Ran = forks.Ran


def run(
    words: list[str], environment: Mapping[str, str], *, said: str = "", limit_seconds: float = 120
) -> Ran:
    """`trainmaster WORDS`, in the folder of the checkout: its exit code and what it printed.

    subprocess.TimeoutExpired after `limit_seconds`, once it has been ended.
    """
    given = {"words": words, "environment": dict(environment)}
    return _starter().run(["trainmaster", *words], given, said, limit_seconds)


@functools.cache
def _starter() -> forks.Starter:
    """One for all tests of this process; it ends when they do, since its way is closed then."""
    # of the environment in which pytest runs it keeps what Python itself needs
    return forks.Starter("tests.rig.warm_cli", {**os.environ, "PYTHONPATH": str(ROOT)})


def _become(given: dict[str, Any]) -> int:
    """Be the command; its exit code."""
    from trainmaster.cli.main import main

    os.environ.clear()
    os.environ.update(given["environment"])
    sys.argv = [str(ROOT / "trainmaster" / "cli" / "main.py"), *given["words"]]
    return main()


if __name__ == "__main__":
    import trainmaster.cli.main  # noqa: F401  # here once, for all that are forked

    forks.serve(int(sys.argv[1]), _become)
