"""The records that launcher and runner keep about a run: who runs, and whether all is shipped."""

from __future__ import annotations

import fcntl
import os
from contextlib import contextmanager
from pathlib import Path
from typing import Iterator, Optional, TypedDict, cast

from trainmaster.jsonfile import read_json, write_json
from trainmaster.paths import RunPaths
from trainmaster.processes import reference
from trainmaster.protocol import ExitFile, RunState, ServerAddress, Spec

_NUMBER_OR_NONE = (int, type(None))
_EXIT_FIELDS = {
    "code": _NUMBER_OR_NONE,
    "signal": _NUMBER_OR_NONE,
    "ended_at": (int, float),
    "stopped": (bool,),
}


class ShippedFile(TypedDict):
    """How much of the outbox the server has. `finished`: nothing is left to do for a runner.

    `refused` says why the server would not hear more of this run, None if it did not refuse."""

    offset: int
    finished: bool
    refused: Optional[str]


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Hold an exclusive lock on `path` (made if need be)."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def try_lock(path: Path) -> Optional[int]:
    """A descriptor that holds the lock on `path` until it is closed, None if another process holds it."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        return None
    return descriptor


def read_spec(paths: RunPaths) -> Spec:
    """The run's spec.json; FileNotFoundError when there is none."""
    spec = read_json(paths.spec)
    if spec is None:
        raise FileNotFoundError(f"{paths.spec} is not there.")
    return cast(Spec, spec)


def read_state(paths: RunPaths) -> RunState:
    """state.json, empty before the launcher has started."""
    return cast(RunState, read_json(paths.state) or {})


def read_exit(paths: RunPaths) -> Optional[ExitFile]:
    """exit.json; None when it is not there, and when the job has overwritten it with something else."""
    try:
        found = read_json(paths.exit)
    except ValueError:
        return None
    is_whole = isinstance(found, dict) and all(
        type(found.get(name)) in kinds for name, kinds in _EXIT_FIELDS.items()
    )
    return cast(ExitFile, found) if is_whole else None


def read_server(paths: RunPaths) -> ServerAddress:
    return cast(ServerAddress, read_json(paths.server) or {"urls": [], "cert_sha256": None})


def read_shipped(paths: RunPaths) -> ShippedFile:
    return cast(ShippedFile, read_json(paths.shipped) or {"offset": 0, "finished": False, "refused": None})


def update_state(paths: RunPaths, changes: RunState) -> RunState:
    """Merge `changes` into state.json; launcher and runner both write it."""
    with locked(paths.state_lock):
        state = read_state(paths)
        state.update(changes)
        write_json(paths.state, state)
    return state


def register(paths: RunPaths, role: str) -> None:
    """Record the calling process as the run's `launcher` or `runner`."""
    update_state(paths, cast(RunState, {role: reference(os.getpid())}))
