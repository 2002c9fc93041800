"""Processes of a run, found and named so that no later process of the same pid is taken for one of them."""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import time
from pathlib import Path
from typing import Dict, List, Optional, Tuple

from trainmaster.protocol import MARKER, ProcessRef, RunState

PROC = Path("/proc")
_READ_BYTES = 64 * 1024
_PR_SET_CHILD_SUBREAPER = 36
_SHELLS = ("sh", "bash", "dash", "ash", "busybox", "zsh")


def boot_id() -> str:
    """The kernel's id of this boot."""
    return (PROC / "sys/kernel/random/boot_id").read_text().strip()


def stat_fields(pid: int) -> Optional[List[str]]:
    """Fields 3 and up of /proc/<pid>/stat (the name before them may hold spaces), None when it is gone."""
    text = _read(str(pid), "stat")
    return None if text is None else text.rpartition(b")")[2].decode("ascii", "replace").split()


def _pids() -> List[str]:
    return [name for name in os.listdir(PROC) if name.isdigit()]  # noqa: PTH208  # a path each costs more than all else


def _read(pid: str, name: str) -> Optional[bytes]:
    """A file of a process in /proc; None when it is gone, or another account's.

    Each start and each end of a run reads one of every process of the host, so it is read by the plainest calls.
    """
    try:
        descriptor = os.open(f"{PROC}/{pid}/{name}", os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        content = piece = os.read(descriptor, _READ_BYTES)
        while len(piece) == _READ_BYTES:
            piece = os.read(descriptor, _READ_BYTES)
            content += piece
        return content
    except OSError:
        return None
    finally:
        os.close(descriptor)


def reference(pid: int) -> Optional[ProcessRef]:
    """The process that has `pid` now, None when there is none or only its corpse."""
    fields = stat_fields(pid)
    if fields is None or fields[0] in ("Z", "X"):
        return None
    return {"pid": pid, "start_time": int(fields[19])}


def status_of_corpse(process: ProcessRef) -> Optional[int]:
    """The wait status of a process that has ended and that nobody has waited for yet; None when it cannot be seen."""
    fields = stat_fields(process["pid"])
    if fields is None or fields[0] not in ("Z", "X") or int(fields[19]) != process["start_time"]:
        return None
    return int(fields[49])


def is_alive(process: Optional[ProcessRef], boot: str) -> bool:
    """True if this very process still runs; `boot` is the boot id at which it was recorded."""
    return process is not None and boot == boot_id() and reference(process["pid"]) == process


def alive(state: RunState, role: str) -> bool:
    """True if the state's `launcher`, `entrypoint` or `runner` still runs."""
    process: Optional[ProcessRef] = state.get(role)  # type: ignore[assignment]  # the role is one of the three
    return is_alive(process, state.get("boot_id", ""))


def signal_group(leader: ProcessRef, boot: str, number: int, *, alone: bool = False) -> bool:
    """Signal the group that `leader` leads, or `alone` itself, if it is still that process. True: it was sent."""
    if not is_alive(leader, boot) or os.getpgid(leader["pid"]) != leader["pid"]:
        return False
    with contextlib.suppress(ProcessLookupError):
        (os.kill if alone else os.killpg)(leader["pid"], number)
        return True
    return False


def marked(variable: str = MARKER) -> Dict[str, List[ProcessRef]]:
    """All living processes that carry a run's marker and that this account may look at, by run key.

    With `KEEPER_MARKER`, launcher, runner and stopper instead of the job.
    """
    found: Dict[str, List[ProcessRef]] = {}
    prefix = f"{variable}=".encode()
    for pid in _pids():
        key = _marker(pid, prefix)
        process = reference(int(pid)) if key else None
        if key and process:
            found.setdefault(key, []).append(process)
    return found


def of_account(processes: List[ProcessRef], uid: Optional[int]) -> List[ProcessRef]:
    """Return those that an account has started; all of them without a uid.

    Root sees everyone's processes, and anyone can give theirs the marker of another account's run.
    """
    return [process for process in processes if uid is None or real_uid(process["pid"]) == uid]


def real_uid(pid: int) -> Optional[int]:
    """The uid that started a process: its files in /proc belong to root where it may not be looked into."""
    try:
        lines = (PROC / str(pid) / "status").read_text(errors="replace").splitlines()
    except OSError:
        return None
    found = [line.split()[1] for line in lines if line.startswith("Uid:")]
    return int(found[0]) if found else None


def marker_of(pid: int, variable: str = MARKER) -> Optional[str]:
    """The run key in the environment of a process, None without one or where this account may not look."""
    return _marker(str(pid), f"{variable}=".encode())


def is_hidden(pid: int) -> bool:
    """Whether this account may not look at the environment of a process."""
    return _read(str(pid), "environ") is None


def is_shell(pid: int) -> bool:
    try:
        return (PROC / str(pid) / "comm").read_text().strip() in _SHELLS
    except OSError:
        return False


def number_inside(pid: int) -> int:
    """The number by which a process knows itself: another one in a container with process numbers of its own."""
    for line in (_read(str(pid), "status") or b"").splitlines():
        if line.startswith(b"NSpid:"):
            return int(line.split()[-1])
    return pid


def state_of(pid: int) -> str:
    """The kernel's letter for what it does (`D`: it waits in the kernel), empty when it is gone."""
    fields = stat_fields(pid)
    return fields[0] if fields is not None else ""


def owner_of(pid: int) -> Optional[int]:
    """The uid of a process, None when it is gone or cannot be seen."""
    try:
        return (PROC / str(pid)).stat().st_uid
    except OSError:
        return None


def age_seconds(pid: int) -> Optional[float]:
    """For how long a process has been there, by the kernel's own clock; None when it is gone."""
    fields = stat_fields(pid)
    if fields is None:
        return None
    now = time.clock_gettime(time.CLOCK_BOOTTIME)  # a container may have an uptime of its own in /proc
    return max(0.0, now - int(fields[19]) / os.sysconf("SC_CLK_TCK"))


def parent_of(pid: int) -> Optional[int]:
    fields = stat_fields(pid)
    return int(fields[1]) if fields is not None else None


def _marker(pid: str, prefix: bytes) -> Optional[str]:
    environment = _read(pid, "environ")
    if environment is None or prefix not in environment:
        return None
    for variable in environment.split(b"\0"):
        if variable.startswith(prefix):
            return variable[len(prefix) :].decode("utf-8", "replace")
    return None


def of_run(key: str) -> List[ProcessRef]:
    """The living processes that carry this run's marker, never the calling one."""
    return [process for process in marked().get(key, []) if process["pid"] != os.getpid()]


def become_subreaper() -> None:
    """Orphans of what the calling process has started become its own children, where `descendants` finds them."""
    try:
        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    except (OSError, AttributeError):  # another C library; the marker finds all but those that cleared it
        return


def descendants(root: int) -> List[ProcessRef]:
    """All living processes below `root`: with a subreaper these include orphans that dropped their marker."""
    children: Dict[int, List[int]] = {}
    for name in _pids():
        text = _read(name, "stat")
        if text is not None:
            parent = int(text[text.rindex(b")") + 4 :].split(None, 1)[0])  # behind the letter of its state
            children.setdefault(parent, []).append(int(name))
    found: List[ProcessRef] = []
    waiting = list(children.get(root, []))
    while waiting:
        pid = waiting.pop()
        waiting.extend(children.get(pid, []))
        process = reference(pid)
        if process:
            found.append(process)
    return found


def kill(process: ProcessRef, boot: str) -> None:
    """SIGKILL, if it is still this process."""
    if is_alive(process, boot):
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(process["pid"], signal.SIGKILL)


def exit_status(wait_status: int) -> Tuple[int, Optional[int]]:
    """(code as a shell gives it, signal number or None) of a wait status."""
    if os.WIFSIGNALED(wait_status):
        number = os.WTERMSIG(wait_status)
        return 128 + number, number
    return os.WEXITSTATUS(wait_status), None
