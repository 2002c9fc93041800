"""The stop sequence: SIGTERM to the entrypoint's group, the job's own grace, SIGKILL, a sweep until none is left.

It runs in a process of its own session, so neither the end of an SSH connection nor that of the runner interrupts
it. Any number of callers may ask for it: one process carries it out, by the earliest deadline asked for.
"""

from __future__ import annotations

import os
import signal
import time
from typing import List, Optional, Sequence, Tuple, cast

from trainmaster.jsonfile import make_json, read_object, write_json
from trainmaster.paths import RunPaths
from trainmaster.processes import (
    alive,
    boot_id,
    is_alive,
    is_shell,
    kill,
    marked,
    number_inside,
    of_run,
    parent_of,
    signal_group,
)
from trainmaster.protocol import CONTAINER_MARKER, ProcessRef, RunState, StopFile, StopOrder
from trainmaster.runner.detached import start_detached
from trainmaster.runner.state import is_number, locked, read_state, try_lock

_POLL_SECONDS = 0.05
#: a process that survives SIGKILL this long sits in the kernel; status keeps reporting it
_SWEEP_SECONDS = 60.0


def order_stop(paths: RunPaths, order: StopOrder) -> None:
    """Write control/stop.json, or move its deadline earlier; a later deadline than the first changes nothing."""
    wanted: StopFile = {
        "grace_seconds": order["grace_seconds"],
        "reason": order["reason"],
        "deadline": time.time() + order["grace_seconds"],
    }
    if make_json(paths.stop, wanted):
        return
    with locked(paths.state_lock):
        current = read_stop(paths)
        if current is None or wanted["deadline"] < current["deadline"]:
            write_json(paths.stop, wanted)


def read_stop(paths: RunPaths) -> Optional[StopFile]:
    """control/stop.json; None when it is not there, and when the job has put something else in its place."""
    found = read_object(paths.stop)
    whole = is_number(found.get("deadline")) and is_number(found.get("grace_seconds"))
    return cast(StopFile, found) if whole and isinstance(found.get("reason"), str) else None


def begin_stop(paths: RunPaths, order: StopOrder) -> None:
    """Order the stop and start the process that carries it out; returns at once."""
    order_stop(paths, order)
    start_detached("stop", paths)


def carry_out(paths: RunPaths) -> None:
    """The stop sequence itself, by control/stop.json; returns when no process of the run is left.

    At once when another process already carries it out.
    """
    lock = try_lock(paths.stop_lock)
    if lock is None:  # it reads the deadline again and again, so an earlier one has reached it
        return
    try:
        wait_for_grace(paths, _terminate(paths))
        sweep(paths.key)
    finally:
        os.close(lock)


def sweep(key: str, more: Sequence[ProcessRef] = ()) -> None:
    """SIGKILL every process with the run's marker, and those in `more`, until none is left or the time is up."""
    boot = boot_id()
    until = time.monotonic() + _SWEEP_SECONDS
    while True:
        left = of_run(key) + [process for process in more if is_alive(process, boot)]
        if not left or time.monotonic() > until:
            return
        for process in left:
            kill(process, boot)
        time.sleep(_POLL_SECONDS)


def _terminate(paths: RunPaths) -> Optional[List[ProcessRef]]:
    """SIGTERM to the entrypoint's group, waiting for an entrypoint that is just being started.

    In a container it goes to the groups inside; the shells there that are held until the others have ended. None: the
    job has not begun in its container, and has to be told once it has.
    """
    state = read_state(paths)
    until = time.monotonic() + 5.0
    while "entrypoint" not in state and alive(state, "launcher") and time.monotonic() < until:
        if paths.exit.exists():
            return []
        time.sleep(_POLL_SECONDS)
        state = read_state(paths)
    if "entrypoint" not in state:
        return []
    inside = _inside(paths.key)
    told, held = _tell(inside, state["boot_id"])
    if not told:  # no container, or none yet
        signal_group(state["entrypoint"], state["boot_id"], signal.SIGTERM)
    if inside and not _is_number_one_alone(inside):
        return held
    return None if read_object(paths.spec).get("container") else []


def _tell(inside: List[ProcessRef], boot: str) -> Tuple[bool, List[ProcessRef]]:
    """SIGTERM to the groups inside a container: whether there are any, and the shells that are held."""
    pids = {process["pid"] for process in inside}
    first = [process for process in inside if parent_of(process["pid"]) not in pids]
    held = [process for process in first if len(inside) > 1 and is_shell(process["pid"])]
    # a container ends with its first process, and would take those that still save with it
    for process in held:
        signal_group(process, boot, signal.SIGSTOP, alone=True)
    told = [signal_group(process, boot, signal.SIGTERM) for process in first]
    return any(told), held


def _is_number_one_alone(inside: List[ProcessRef]) -> bool:
    """Whether a container with process numbers of its own has only its first process, which such a signal misses."""
    return len(inside) == 1 and number_inside(inside[0]["pid"]) == 1


def _tell_late(key: str) -> Optional[List[ProcessRef]]:
    """Tell a job that has begun since, where number 1 has dropped what came before; None as long as it has not."""
    inside = _inside(key)
    if len(inside) < 2 or all(number_inside(process["pid"]) != 1 for process in inside):
        return None
    return _tell(inside, boot_id())[1]


def _inside(key: str) -> List[ProcessRef]:
    """The run's processes inside a container; not the program that runs that."""
    return marked(CONTAINER_MARKER).get(key, [])


def _release(key: str, held: List[ProcessRef]) -> List[ProcessRef]:
    """Let held shells die of their SIGTERM once they are the last inside; those that are held still."""
    if not held or any(process not in held for process in _inside(key)):
        return held
    boot = boot_id()
    for process in held:
        signal_group(process, boot, signal.SIGCONT, alone=True)
    return []


def wait_for_grace(paths: RunPaths, held: Optional[Sequence[ProcessRef]] = ()) -> None:
    """Until the deadline of control/stop.json, or until no process of the run is left.

    A shell as entrypoint dies of the SIGTERM at once while its child still saves: all of the run counts. `held` are
    those that `_terminate` keeps until then; None if it has told nobody yet.
    """
    waiting = None if held is None else list(held)
    while True:
        waiting = _tell_late(paths.key) if waiting is None else _release(paths.key, waiting)
        order = read_stop(paths)
        if order is None or time.time() >= order["deadline"]:
            return
        state = read_state(paths)
        if not alive(state, "entrypoint") and not of_run(paths.key) and not _hook_is_due(paths, state):
            return
        time.sleep(_POLL_SECONDS)


def _hook_is_due(paths: RunPaths, state: RunState) -> bool:
    """Whether the launcher is about to start a post hook, or has one running: exit.json comes after it."""
    if paths.exit.exists() or not alive(state, "launcher"):
        return False
    spec_hooks = read_object(paths.spec).get("hooks")
    return isinstance(spec_hooks, dict) and bool(spec_hooks.get("post"))
