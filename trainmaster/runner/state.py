"""The records that launcher and runner keep about a run: who runs, and whether all is shipped."""

from __future__ import annotations

import fcntl
import os
import time
from contextlib import contextmanager
from pathlib import Path
from typing import Iterator, Optional, TypedDict, cast

from trainmaster import bounded_json
from trainmaster.jsonfile import read_object, write_json
from trainmaster.paths import RunPaths
from trainmaster.protocol import ExitFile, RunState, ServerAddress, Spec

#: of exit codes, signals, ports and counts
_INTEGER_MAX = 2**31
#: of a time since 1970; later than any, and far below what a float cannot hold
_SECONDS_MAX = 1e12
LOCK_SECONDS = 10.0
_POLL_SECONDS = 0.01
_SENTENCE_CHARACTERS = 2000


class ShippedFile(TypedDict):
    """How much of the outbox the server has. `finished`: nothing is left to do for a runner.

    `refused` says why the server would not hear more of this run, None if it did not refuse."""

    offset: int
    finished: bool
    refused: Optional[str]


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Hold an exclusive lock on `path` (made if need be). TimeoutError: another process held it for LOCK_SECONDS.

    A job may hold any lock in its folder forever.
    """
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        if not lock_until(descriptor, fcntl.LOCK_EX, time.monotonic() + LOCK_SECONDS, _POLL_SECONDS):
            raise TimeoutError(f"another process has held {path} for {LOCK_SECONDS:g} s")
        yield
    finally:
        os.close(descriptor)


def lock_until(descriptor: int, kind: int, until: float, poll_seconds: float) -> bool:
    """Lock an open file, trying until `until` (of time.monotonic). False: another process holds it."""
    while True:
        try:
            fcntl.flock(descriptor, kind | fcntl.LOCK_NB)
            return True
        except BlockingIOError:
            if time.monotonic() >= until:
                return False
            time.sleep(poll_seconds)


def try_lock(path: Path) -> Optional[int]:
    """A descriptor that holds the lock on `path` until it is closed, None if another process holds it."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    if lock_until(descriptor, fcntl.LOCK_EX, 0.0, 0.0):
        return descriptor
    os.close(descriptor)
    return None


def read_spec(paths: RunPaths) -> Spec:
    """The run's spec.json; FileNotFoundError when there is none.

    Only processes of this run read it, so it is read plainly: whoever spoils it harms this run alone.
    """
    return cast(Spec, bounded_json.loads(paths.spec.read_text(encoding="utf-8")))


def read_state(paths: RunPaths) -> RunState:
    """state.json; empty before the launcher has started, and when the job has put something else in its place."""
    found = read_object(paths.state)
    for name in ("host_id", "boot_id", "bundle"):
        if not isinstance(found.get(name), str):
            found.pop(name, None)
    for role in ("launcher", "entrypoint", "runner"):
        if not _is_reference(found.get(role)):
            found.pop(role, None)
    return cast(RunState, found if "boot_id" in found else {})


def read_exit(paths: RunPaths) -> Optional[ExitFile]:
    """exit.json; None when it is not there, and when the job has put something else in its place."""
    found = read_object(paths.exit)
    whole = (
        all(
            name in found and (found[name] is None or _is_integer(found[name])) for name in ("code", "signal")
        )
        and is_number(found.get("ended_at"))
        and isinstance(found.get("stopped"), bool)
    )
    if not whole:
        return None
    kills = found.get("oom_kills")
    if not isinstance(kills, dict) or not all(map(_is_integer, kills.values())):
        found.pop("oom_kills", None)
    if not _is_integer(found.get("port_in_use")):
        found.pop("port_in_use", None)
    for name in ("storage_fault", "image_fault", "hook_fault"):
        sentence = found.pop(name, None)
        if isinstance(sentence, str):
            found[name] = _printable(sentence)
    return cast(ExitFile, found)


def is_number(value: object) -> bool:
    """Whether a value read from JSON is a finite number that fits wherever one is kept; true and false are not."""
    return type(value) in (int, float) and -_SECONDS_MAX < cast(float, value) < _SECONDS_MAX


def _is_integer(value: object) -> bool:
    return type(value) is int and -_INTEGER_MAX < value < _INTEGER_MAX


def _is_reference(value: object) -> bool:
    """Whether it is a `ProcessRef`."""
    return isinstance(value, dict) and all(type(value.get(name)) is int for name in ("pid", "start_time"))


def _printable(sentence: str) -> str:
    """Without what no database and no terminal takes."""
    return "".join(each if each.isprintable() else " " for each in sentence[:_SENTENCE_CHARACTERS])


def read_sentence(path: Path) -> Optional[str]:
    """The sentence that was noted in control/ of what keeps the run from starting; None without one."""
    sentence = read_object(path).get("sentence")
    return sentence if isinstance(sentence, str) else None


def note_sentence(path: Path, sentence: str) -> None:
    path.parent.mkdir(mode=0o700, exist_ok=True)
    write_json(path, {"sentence": sentence})


def read_server(paths: RunPaths) -> ServerAddress:
    found = read_object(paths.server)
    if not isinstance(found.get("urls"), list) or not all(isinstance(url, str) for url in found["urls"]):
        return {"urls": [], "cert_sha256": None}
    return cast(ServerAddress, {"cert_sha256": None, **found})


def read_shipped(paths: RunPaths) -> ShippedFile:
    found = read_object(paths.shipped)
    is_whole = (
        type(found.get("offset")) is int and found["offset"] >= 0 and type(found.get("finished")) is bool
    )
    if not is_whole:
        return {"offset": 0, "finished": False, "refused": None}
    return cast(ShippedFile, {"refused": None, **found})


def update_state(paths: RunPaths, changes: RunState) -> None:
    """Merge `changes` into state.json; launcher and runner both write it."""
    with locked(paths.state_lock):
        state = read_state(paths)
        state.update(changes)
        write_json(paths.state, state)
