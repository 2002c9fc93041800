"""`<python> <bundle>/trainmaster/host <verb>`: JSON on the first line of stdin, the answer on the last of stdout."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any, Dict, List, Optional

sys.path[0] = str(
    Path(__file__).resolve().parents[2]
)  # the bundle, in place of this folder: it shadows nothing

VERBS = ("probe", "launch", "status", "stop", "preempt", "server", "remove", "check")


def main(arguments: List[str]) -> int:
    """Exit code 0 whenever an answer was given, an error sentence included; 2 for a call nobody should make."""
    if not arguments or arguments[0] not in VERBS:
        sys.stderr.write(f"There is no verb {' '.join(arguments)!r}; known are {', '.join(VERBS)}.\n")
        return 2
    if sys.version_info < (3, 8):
        found = ".".join(map(str, sys.version_info[:3]))
        return _answer(
            {"error": "old_python", "message": f"{sys.executable} is Python {found}; 3.8 or newer is needed."}
        )
    from trainmaster.host.errors import VerbError

    try:
        return _answer(_run(arguments[0], _workdir(arguments[1:])))
    except VerbError as error:
        return _answer({"error": error.code, "message": str(error)})
    except OSError as error:
        return _answer({"error": "os", "message": f"The verb {arguments[0]} failed on the host: {error}."})


def _run(verb: str, folder: Path) -> Dict[str, Any]:
    from trainmaster.host.errors import VerbError
    from trainmaster.paths import Workdir

    workdir = Workdir(folder)
    line = sys.stdin.buffer.readline() if verb != "probe" or not sys.stdin.isatty() else b""
    try:
        request = json.loads(line or b"{}")
    except ValueError as error:
        raise VerbError("bad_request", f"The first line of stdin is not JSON: {error}.") from error
    if verb == "launch":
        from trainmaster.host.launching import launch

        return launch(request, sys.stdin.buffer, workdir)
    if verb == "probe":
        from trainmaster.host.probing import probe

        return probe(request, workdir)
    if verb == "check":
        from trainmaster.host.checking import check

        return check(request, workdir)
    from trainmaster.host import controlling

    answer: Dict[str, Any] = getattr(controlling, verb)(request, workdir)
    return answer


def _workdir(arguments: List[str]) -> Path:
    """`--workdir PATH`, else the folder whose `bundle/<sha256>` this program lies in."""
    if len(arguments) >= 2 and arguments[0] == "--workdir":
        return Path(arguments[1]).expanduser().absolute()
    named: Optional[str] = os.environ.get("TRAINMASTER_WORKDIR")
    if named:
        return Path(named).expanduser().absolute()
    return Path(__file__).resolve().parents[4]


def _answer(answer: Dict[str, Any]) -> int:
    sys.stdout.write(json.dumps(answer) + "\n")
    sys.stdout.flush()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
