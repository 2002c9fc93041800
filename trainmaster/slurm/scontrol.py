"""`scontrol show hostnames`, which scripts use to find their first host; all else is refused with a sentence."""

from __future__ import annotations

import os
import sys

from trainmaster.slurm.amounts import hosts
from trainmaster.slurm.options import BadScript


def main() -> int:
    """Its exit code."""
    words = [word for word in sys.argv[1:] if not word.startswith("-")]
    if words[:2] in (["show", "hostnames"], ["show", "hostname"]):
        listed = words[2] if len(words) > 2 else os.environ.get("SLURM_JOB_NODELIST", "")
        try:
            print("\n".join(hosts(listed, "hostnames")))
        except BadScript as error:
            print(f"scontrol: {error}", file=sys.stderr)
            return 1
        return 0
    print(
        f"scontrol {' '.join(words)}: only `scontrol show hostnames` exists in a job of Trainmaster. "
        "For what replaces the rest, see docs/slurm.md.",
        file=sys.stderr,
    )
    return 1
