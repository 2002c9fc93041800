"""`<python> <bundle>/trainmaster/host <verb>`: JSON on the first line of stdin, the answer on the last of stdout.

`serve` does any number of verbs, one after another or side by side (see serving.py). `relay` lets other machines use a
tunnel (see relaying.py).
"""

from __future__ import annotations

import importlib
import json
import os
import sys
from pathlib import Path
from typing import IO, Any, Dict, List, Optional

# the bundle, in place of this folder: it shadows nothing
sys.path[0] = str(Path(__file__).resolve().parents[2])

#: verb -> the module of this package that has a function of its name; imported only when it is asked for
_MODULES = {
    "probe": "probing",
    "launch": "launching",
    "revoke": "revoking",
    "status": "controlling",
    "stop": "controlling",
    "preempt": "controlling",
    "server": "controlling",
    "remove": "controlling",
    "check": "checking",
    "meet": "meeting",
    "all_reduce": "reducing",
    "stack": "stacks",
    "discard": "discarding",
    "clean": "remains",
    "command": "commanding",
}
VERBS = tuple(_MODULES)


def main(arguments: List[str]) -> int:
    """Exit code 0 whenever an answer was given, an error sentence included; 2 for a call nobody should make."""
    if not arguments or arguments[0] not in (*VERBS, "serve", "relay"):
        sys.stderr.write(
            f"There is no verb {' '.join(arguments)!r}; allowed: {', '.join(VERBS)}, serve and relay.\n"
        )
        return 2
    if sys.version_info < (3, 8):
        found = ".".join(map(str, sys.version_info[:3]))
        return _answer(
            {
                "error": "old_python",
                "message": f"{sys.executable} is Python {found}; 3.8 or newer is required.",
            }
        )
    if arguments[0] == "launch":  # without this line the server knows for certain that nothing was begun
        _answer({"begun": 1})
    if arguments[0] == "relay":
        from trainmaster.host.relaying import relay

        return relay()
    folder = _workdir(arguments[1:])
    if arguments[0] in ("serve", "launch"):
        _leave_unit()
    if arguments[0] == "serve":
        from trainmaster.host.serving import Serving

        return Serving(folder, perform).run()
    return _answer(perform(arguments[0], folder, sys.stdin.buffer))


def _leave_unit() -> None:
    """What is launched must not end with the service or session that launches it."""
    from trainmaster.host import own_scope

    if own_scope.SYSTEMD.is_dir():
        from trainmaster.host.probing import logind_facts

        own_scope.leave(logind_facts()["detached_runs_survive"])


def perform(verb: str, folder: Path, stream: IO[bytes]) -> Dict[str, Any]:
    """The answer of a verb to what stands on `stream`; a failure is an answer too."""
    from trainmaster.host.errors import VerbError, of_system
    from trainmaster.protocol import ProtocolError

    try:
        return _run(verb, folder, stream)
    except VerbError as error:
        return {"error": error.code, "message": str(error)}
    except ProtocolError as error:
        return {"error": "bad_request", "message": str(error)}
    except OSError as error:
        return of_system(error, f"The verb {verb} failed on the host: {error}.")


def _run(verb: str, folder: Path, stream: IO[bytes]) -> Dict[str, Any]:
    from trainmaster.host.errors import VerbError
    from trainmaster.paths import Workdir

    if verb not in VERBS:
        raise VerbError("bad_request", f"There is no verb {verb!r}; allowed: {', '.join(VERBS)}.")
    workdir = Workdir(folder)
    line = stream.readline() if verb != "probe" or not stream.isatty() else b""
    try:
        request = json.loads(line or b"{}")
    except ValueError as error:
        raise VerbError("bad_request", f"The first line of stdin is not JSON: {error}.") from error
    if "of_node" in request:  # a step of a Slurm job has the same stdin on all nodes
        request["runs"] = request.pop("of_node").get(os.environ.get("SLURMD_NODENAME"), {})
    do = getattr(importlib.import_module(f"trainmaster.host.{_MODULES[verb]}"), verb)
    answer: Dict[str, Any] = do(request, stream, workdir) if verb == "launch" else do(request, workdir)
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
