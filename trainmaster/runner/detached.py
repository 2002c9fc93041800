"""Start a process that outlives its starter: own session, no terminal, nothing of the starter's held open."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from pathlib import Path
from typing import Dict, List, Optional, Tuple

from trainmaster.protocol import KEEPER_MARKER, MARKER, RUN_DIR

RUNNER_PROGRAM = Path(__file__).resolve().parent


def runner_command(verb: str, run_dir: Path) -> List[str]:
    """The command line of a host process of a run; `verb` is `keep`, `ship` or `stop`."""
    return [sys.executable, "-E", "-s", str(RUNNER_PROGRAM), verb, str(run_dir)]


def own_environment(run_key: str) -> Dict[str, str]:
    """The environment of launcher, runner and stopper: their starter's, without the job's marker."""
    environment = {name: value for name, value in os.environ.items() if name not in (MARKER, RUN_DIR)}
    environment[KEEPER_MARKER] = run_key
    return environment


def start_detached(
    command: List[str], environment: Dict[str, str], log: Path, keep_open: Tuple[int, ...] = ()
) -> None:
    """Double-fork `command` into a session of its own and return at once.

    stdin is /dev/null, stdout and stderr go to `log`; of the caller's descriptors only `keep_open` are inherited.
    The middle process is a fork of its own, so that the new process is nobody's child who would have to reap it.
    """
    middle = os.fork()
    if middle:
        os.waitpid(middle, 0)
        return
    try:
        spawn_in_session(command, environment, log, keep_open)
    except BaseException as error:
        with contextlib.suppress(OSError), log.open("a") as file:
            file.write(f"{command[0]} cannot be started: {error}\n")
    finally:
        os._exit(0)


def spawn_in_session(
    command: List[str],
    environment: Dict[str, str],
    log: Path,
    keep_open: Tuple[int, ...] = (),
    folder: Optional[Path] = None,
) -> subprocess.Popen[bytes]:
    """Start `command` as a child, leader of its own session."""
    descriptor = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
    try:
        return subprocess.Popen(
            command,
            env=environment,
            cwd=str(folder or "/"),
            stdin=subprocess.DEVNULL,
            stdout=descriptor,
            stderr=descriptor,
            start_new_session=True,
            pass_fds=keep_open,
        )
    finally:
        os.close(descriptor)
