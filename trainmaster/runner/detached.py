"""Start a process that outlives its starter: own session, no terminal, nothing of the starter's held open."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from pathlib import Path
from typing import Dict, Tuple

from trainmaster.paths import RunPaths
from trainmaster.protocol import KEEPER_MARKER, MARKER, RUN_DIR
from trainmaster.runner import warm
from trainmaster.runner.runner_log import open_log

RUNNER_PROGRAM = Path(__file__).resolve().parent


def own_environment(run_key: str) -> Dict[str, str]:
    """The environment of launcher, runner and stopper: their starter's, without the job's marker."""
    left_out = (MARKER, RUN_DIR, warm.SPARE_VARIABLE)
    environment = {name: value for name, value in os.environ.items() if name not in left_out}
    environment[KEEPER_MARKER] = run_key
    return environment


def start_detached(verb: str, paths: RunPaths, *arguments: str, keep_open: Tuple[int, ...] = ()) -> None:
    """Start a host process of the run, in a session of its own, and return at once.

    The middle process is a fork of its own, so that the new process is nobody's child who would have to reap it. One
    that is warm does verbs: it ends before long, and whoever reaps orphans reaps its children.
    """
    if warm.is_warm():
        spawn_in_session(verb, paths, *arguments, keep_open=keep_open)
        return
    middle = os.fork()
    if middle:
        os.waitpid(middle, 0)
        return
    try:
        spawn_in_session(verb, paths, *arguments, keep_open=keep_open)
    except BaseException as error:
        with contextlib.suppress(OSError), os.fdopen(open_log(paths.runner_log), "a") as file:
            file.write(f"{sys.executable} cannot be started: {error}\n")
    finally:
        os._exit(0)


def spawn_in_session(verb: str, paths: RunPaths, *arguments: str, keep_open: Tuple[int, ...] = ()) -> int:
    """The pid of a new child, leader of its own session; the caller reaps it.

    stdin is /dev/null, stdout and stderr go to the run's log of such processes; of the caller's descriptors only
    `keep_open` are inherited. `verb` is one of __main__.
    """
    command = [sys.executable, "-E", "-s", str(RUNNER_PROGRAM), verb, str(paths.root), *arguments]
    environment = own_environment(paths.key)
    if warm.is_warm():
        return warm.fork(command, environment, paths.runner_log, keep_open)
    log = open_log(paths.runner_log)
    try:
        child = subprocess.Popen(
            command,
            env=environment,
            cwd="/",
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
            pass_fds=keep_open,
        )
    finally:
        os.close(log)
    child.returncode = 0  # the caller reaps it by its pid; Popen must not
    return child.pid
