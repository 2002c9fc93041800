"""The commands that a config has before and after its entrypoint (`environment.hooks`), on every host of the run.

`python3 -m trainmaster.runner.hooks pre|post [SECONDS]` runs one of them in the job's environment and folder, says in
the log how it went, and ends it after SECONDS, by default what the config allows. Its exit code is the hook's, or 124
when that took too long.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from typing import Any, Dict, List, Optional, Sequence, Union

from trainmaster.paths import RunPaths
from trainmaster.protocol import EXIT_NOT_EXECUTABLE, EXIT_NOT_FOUND, Spec
from trainmaster.runner.state import note_sentence, read_spec

EXIT_TIMED_OUT = 124  # as timeout(1) has it
#: for the post hook: the exit code of the entrypoint, as a shell gives it; empty when nobody knows it
EXIT_CODE = "TRAINMASTER_EXIT_CODE"
_GRACE_SECONDS = 5.0
_AFTERWARDS = {"pre": "the entrypoint was not started", "post": "the result of the run is the entrypoint's"}


def command_of(which: str, seconds: Optional[float] = None) -> List[str]:
    """The words that run the hook in the job's Python."""
    words = ["python3", "-m", "trainmaster.runner.hooks", which]
    return words if seconds is None else [*words, f"{seconds:.1f}"]


def of_spec(spec: Spec) -> Dict[str, Any]:
    """The hooks of the run; a spec of an older server has none."""
    found: Any = spec.get("hooks")
    return dict(found or {})


def run(which: str, command: Union[str, List[str]], seconds: float) -> int:
    """Run one hook to its end; its exit code."""
    began = time.monotonic()
    say("INFO", f"the {which} hook starts")
    try:
        words = ["sh", "-c", command] if isinstance(command, str) else command
        child = subprocess.Popen(words, stdin=subprocess.DEVNULL, start_new_session=True)
    except OSError as error:
        code = EXIT_NOT_FOUND if isinstance(error, FileNotFoundError) else EXIT_NOT_EXECUTABLE
        return _failed(which, f"cannot be started: {error.strerror}: {words[0]!r}", code)
    signal.signal(signal.SIGTERM, lambda *_: _end_group(child, signal.SIGTERM))  # it has a group of its own
    try:
        code = child.wait(seconds)
    except subprocess.TimeoutExpired:
        _end(child)
        return _failed(which, f"took longer than {seconds:g} s and was stopped", EXIT_TIMED_OUT)
    if code != 0:
        code = code if code > 0 else 128 - code
        return _failed(which, f"ended with exit code {code}", code)
    say("INFO", f"the {which} hook finished after {time.monotonic() - began:.1f} s")
    return 0


def _end(child: "subprocess.Popen[bytes]") -> None:
    _end_group(child, signal.SIGTERM)
    with contextlib.suppress(subprocess.TimeoutExpired):
        child.wait(_GRACE_SECONDS)
    _end_group(child, signal.SIGKILL)
    child.wait()


def _end_group(child: "subprocess.Popen[bytes]", number: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(child.pid, number)


def _failed(which: str, how: str, code: int) -> int:
    sentence, paths = f"the {which} hook {how}; {_AFTERWARDS[which]}", RunPaths.from_environment()
    if which == "pre" and paths is not None:
        note_sentence(paths.hook_fault, sentence)
    say("ERROR" if which == "pre" else "WARNING", sentence)
    return code


def say(level: str, text: str) -> None:
    """A line on stderr, which is the log of the run."""
    sys.stderr.write(f"{level}: trainmaster: {text}.\n")
    sys.stderr.flush()


def main(arguments: Sequence[str]) -> int:
    """In the job's environment; the hook's exit code."""
    paths = RunPaths.from_environment()
    if paths is None or not arguments:
        return 0
    spec, which = read_spec(paths), arguments[0]
    hooks = of_spec(spec)
    seconds = float(arguments[1] if len(arguments) > 1 else hooks["timeout_seconds"])
    return run(which, hooks[which], seconds) if hooks.get(which) else 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
