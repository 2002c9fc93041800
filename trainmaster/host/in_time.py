"""Questions that may hang (to the GPU driver, to a mount), each asked by a process of its own that may be killed.

What is late is not asked again while its process lives: a call that hangs in the kernel leaves one process, not one
for each look.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import time
from pathlib import Path
from types import GeneratorType
from typing import Any, Callable, Dict, NamedTuple, NoReturn, Optional

from trainmaster import bounded_json
from trainmaster.jsonfile import read_object, write_json
from trainmaster.processes import boot_id, is_alive, reference

#: a process that takes longer ends itself, if the kernel lets it
LONGEST_SECONDS = 120
_READ_BYTES = 1024 * 1024
_END_SECONDS, _POLL_SECONDS = 1.0, 0.001

#: a work that yields gives objects, whose names are put together: what it has yielded before it is late is kept
Work = Callable[[], Any]


class Answer(NamedTuple):
    """`late`: for how many seconds it has been waited for, None if it came.

    `value`: None if nothing has come, and with no `late` if the work failed or no process could be started for it.
    """

    value: Any
    late: Optional[float]


class _Child:
    def __init__(self, work: Work) -> None:
        self.pipe, writer = os.pipe()
        self.said = bytearray()
        try:
            self.pid = os.fork()
        except OSError:
            os.close(self.pipe)
            os.close(writer)
            raise
        if self.pid == 0:
            _carry_out(work, writer)
        os.close(writer)

    def hear(self) -> bool:
        """Take what it has written; False once there is no more."""
        piece = os.read(self.pipe, _READ_BYTES)
        self.said += piece
        return bool(piece)

    def end(self) -> None:
        """Even its end may hang in the driver, so it is not waited for long."""
        until = time.monotonic() + _END_SECONDS
        while os.waitpid(self.pid, os.WNOHANG) == (0, 0) and time.monotonic() < until:
            time.sleep(_POLL_SECONDS)

    def value(self) -> Any:
        """What it said in whole lines."""
        try:
            pieces = [bounded_json.loads(line) for line in bytes(self.said).split(b"\n")[:-1]]
        except ValueError:
            return None
        if len(pieces) < 2:
            return pieces[0] if pieces else None
        return {name: value for piece in pieces for name, value in piece.items()}


def answers(works: Dict[str, Work], kept: Path, seconds: float) -> Dict[str, Answer]:
    """What each work gives, side by side, within so many seconds; `kept` is a file in which late ones are noted."""
    if not works:
        return {}
    now, boot = time.monotonic(), boot_id()
    late = _still_late(kept, boot)
    children = _started({name: work for name, work in works.items() if name not in late})
    done = _hear(children, now + seconds)
    for child in done.values():
        child.end()
    found = {name: Answer(child.value(), None) for name, child in done.items()}
    pending = {
        name: {"process": reference(child.pid), "since": now}
        for name, child in children.items()
        if name not in done
    }
    for child in children.values():
        os.close(child.pipe)
    if late or pending or kept.exists():
        with contextlib.suppress(OSError):  # a full disk: it is asked again too early
            write_json(kept, {"boot_id": boot, "late": {**late, **pending}})
    for name, each in {**late, **pending}.items():
        said = children[name].value() if name in children else None
        found[name] = Answer(said, time.monotonic() - each["since"])
    return {name: found.get(name, Answer(None, None)) for name in works}


def _started(works: Dict[str, Work]) -> Dict[str, _Child]:
    """As many as this host lets this account start."""
    children: Dict[str, _Child] = {}
    for name, work in works.items():
        try:
            children[name] = _Child(work)
        except OSError:
            break
    return children


def _still_late(kept: Path, boot: str) -> Dict[str, Any]:
    """Those of earlier looks whose processes still live."""
    noted = read_object(kept)
    with contextlib.suppress(AttributeError, KeyError, TypeError, ValueError):  # of another version of ours
        if noted.get("boot_id") == boot:
            return {
                str(name): {"process": each["process"], "since": float(each["since"])}
                for name, each in noted["late"].items()
                if is_alive(each["process"], boot)
            }
    return {}


def _hear(children: Dict[str, _Child], until: float) -> Dict[str, _Child]:
    """Those that have answered in time."""
    waiting = {child.pipe: name for name, child in children.items()}
    done: Dict[str, _Child] = {}
    while waiting:
        ready, _, _ = select.select(list(waiting), [], [], max(0.0, until - time.monotonic()))
        if not ready:
            break
        for pipe in ready:
            name = waiting[pipe]
            if not children[name].hear():
                done[name] = children[name]
                del waiting[pipe]
    return done


def _carry_out(work: Work, writer: int) -> NoReturn:
    """In the child: nobody waits for the end of a pipe that a hanging child has kept open."""
    try:
        os.setsid()
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.alarm(LONGEST_SECONDS)
        null = os.open(os.devnull, os.O_RDWR)
        for standard in (0, 1, 2):
            os.dup2(null, standard)
        for name in os.listdir("/proc/self/fd"):  # noqa: PTH208  # numbers, not paths
            if int(name) > 2 and int(name) != writer:
                with contextlib.suppress(OSError):  # that of the listing itself
                    os.close(int(name))
        with os.fdopen(writer, "wb") as file:
            said = work()
            for piece in said if isinstance(said, GeneratorType) else [said]:
                file.write(json.dumps(piece).encode() + b"\n")
                file.flush()
    finally:
        os._exit(0)
