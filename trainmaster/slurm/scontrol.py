"""`scontrol show hostnames` and `scontrol requeue` in a batch script; all else is refused with a sentence."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
from pathlib import Path
from typing import List

from trainmaster.slurm.amounts import hosts
from trainmaster.slurm.batch import PID, REQUEUE, STEPS
from trainmaster.slurm.options import BadScript
from trainmaster.slurm.variables import ARRAY_ID, ID


def main() -> int:
    """Its exit code."""
    words = [word for word in sys.argv[1:] if not word.startswith("-")]
    try:
        return _run(words)
    except BadScript as error:
        print(f"scontrol: {error}", file=sys.stderr)
        return 1


def _run(words: List[str]) -> int:
    if words[:2] in (["show", "hostnames"], ["show", "hostname"]):
        listed = words[2] if len(words) > 2 else os.environ.get("SLURM_JOB_NODELIST", "")
        print("\n".join(hosts(listed, "hostnames")))
        return 0
    if words[:1] == ["requeue"] and STEPS in os.environ:
        _requeue(words[1:])
        return 0
    raise BadScript(
        f"{' '.join(words)!r} does not exist in a job of Trainmaster, allowed: show hostnames, and requeue "
        "with the job's own ID. For what replaces the rest, see docs/slurm.md."
    )


def _requeue(ids: List[str]) -> None:
    """The script is ended; its parent starts it again."""
    own = {os.environ.get(name) for name in ("SLURM_JOB_ID", ID)}
    if "SLURM_ARRAY_TASK_ID" in os.environ:
        index = os.environ["SLURM_ARRAY_TASK_ID"]
        own |= {f"{os.environ.get(name)}_{index}" for name in ("SLURM_ARRAY_JOB_ID", ARRAY_ID)}
    if len(ids) != 1 or ids[0] not in own:
        raise BadScript(f"requeue: found {' '.join(ids)!r}, allowed: the job's own ID, $SLURM_JOB_ID.")
    folder = Path(os.environ[STEPS])
    if (folder / REQUEUE).exists():  # a trap for SIGTERM may come here again
        return
    (folder / REQUEUE).touch()
    with contextlib.suppress(ProcessLookupError):
        os.kill(int((folder / PID).read_text(encoding="ascii")), signal.SIGTERM)
