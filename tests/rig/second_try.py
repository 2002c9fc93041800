"""Runs what has just failed once more, alone: `python -m tests.rig.second_try`, from `make test`.

Tests with real servers, browsers and hosts share two cores there, and one that is starved may fail by that alone. What
fails twice fails. What passes now is named, so that somebody mends it: it is unsteady, or it has found a race.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
LAST_FAILED = ROOT / ".pytest_cache" / "v" / "cache" / "lastfailed"
#: More failures than these are no bad luck.
MOST = 3


def main() -> int:
    failed = sorted(json.loads(LAST_FAILED.read_text())) if LAST_FAILED.exists() else []
    if not 0 < len(failed) <= MOST:
        print(f"{len(failed)} tests failed: too many to be flaky; none is retried.", file=sys.stderr)
        return 1
    print(f"Retrying {len(failed)} alone: {', '.join(failed)}", flush=True)
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", *failed]
    again = subprocess.run(command, cwd=ROOT, check=False)
    if again.returncode == 0:
        print("FLAKY: these failed at first and passed when run alone. Please fix them:", *failed, sep="\n  ")
    return again.returncode


if __name__ == "__main__":
    sys.exit(main())
