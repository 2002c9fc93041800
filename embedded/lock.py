"""One `up` at a time in a data folder, and the record of its children for the one after it."""

import fcntl
import json
import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path

from embedded import account, processes
from embedded.processes import Process

LEFTOVER_LIMIT_SECONDS = 15.0  # what a leftover gets to end by itself


class Held(Exception):
    """Another live `up` has this folder; the text says which."""


@contextmanager
def held(data: Path) -> Iterator[Callable[[str], None]]:
    """Hold the folder's lock; the kernel lets go of it however we end. Yields what notes our address."""
    with (data / "up.lock").open("a+") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise Held(_who(data, file.name)) from None
        since = datetime.now(UTC).isoformat(timespec="seconds")

        def note(address: str) -> None:
            file.truncate(0)
            me = {"pid": os.getpid(), "user": account.current().name, "since": since, "address": address}
            json.dump(me, file)
            file.flush()

        note("an address that is not open yet")
        yield note


def _who(data: Path, path: str) -> str:
    try:
        holder = json.loads(Path(path).read_text())
    except ValueError:  # it is just writing its name
        return f"Trainmaster is already running from {data}."
    return (
        f"Trainmaster is already running from {data}: process {holder['pid']} of {holder['user']}, "
        f"since {holder['since']}, at {holder['address']}. "
        f"Stop it with Ctrl-C or `kill {holder['pid']}`, or choose another folder with --data."
    )


class Register:
    """The children that run now, on disk: a later `up` ends those that outlived a kill -9 of this one."""

    def __init__(self, data: Path) -> None:
        self._path = data / "children.json"
        self._children: dict[str, Process] = {}

    def add(self, name: str, pid: int) -> None:
        if process := processes.identify(pid):
            self._children[name] = process
        self._write()

    def remove(self, name: str) -> None:
        self._children.pop(name, None)
        self._write()

    def _write(self) -> None:
        scratch = self._path.with_suffix(".new")
        scratch.write_text(json.dumps({name: asdict(child) for name, child in self._children.items()}))
        scratch.rename(self._path)

    def end_leftovers(self) -> list[str]:
        """End what a former `up` left running, the last started first; their names."""
        try:
            found = {name: Process(**child) for name, child in json.loads(self._path.read_text()).items()}
        except (FileNotFoundError, ValueError):
            return []
        alive = {name: child for name, child in found.items() if child.alive()}
        for name in reversed(alive):
            first = signal.SIGINT if name == "postgres" else signal.SIGTERM
            processes.end(alive[name], first, LEFTOVER_LIMIT_SECONDS)
        self._path.unlink(missing_ok=True)
        return list(alive)
