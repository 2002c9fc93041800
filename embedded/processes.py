"""A process named so that a reused pid is never taken for it: pid, start time and boot id."""

import contextlib
import ctypes
import os
import signal
import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from embedded.account import Account
from trainmaster.processes import boot_id, is_alive, reference, stat_fields

PR_SET_PDEATHSIG = 1
POLL_SECONDS = 0.05
START_LIMIT_SECONDS = 60.0  # PostgreSQL's recovery after a kill -9 included
_libc = ctypes.CDLL(None, use_errno=True)


@dataclass(frozen=True)
class Process:
    """`start_time` is in clock ticks since boot (field 22 of /proc/<pid>/stat)."""

    pid: int
    start_time: int
    boot_id: str

    def alive(self) -> bool:
        """True while this very process runs; a zombie counts as ended."""
        return is_alive({"pid": self.pid, "start_time": self.start_time}, self.boot_id)

    def signal(self, number: signal.Signals) -> None:
        if self.alive():
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, number)


def identify(pid: int) -> Process | None:
    """The process that has this pid now, or None."""
    found = reference(pid)
    return None if found is None else Process(found["pid"], found["start_time"], boot_id())


def session_seconds(leader: int) -> float:
    """The processor time that the living processes of a session have used, in seconds."""
    ticks = 0
    for path in Path("/proc").glob("[0-9]*"):
        fields = stat_fields(int(path.name))
        if fields is not None and int(fields[3]) == leader:
            ticks += int(fields[11]) + int(fields[12])
    return ticks / os.sysconf("SC_CLK_TCK")


def end(process: Process, first: signal.Signals, limit_seconds: float) -> bool:
    """Send `first`, wait up to the limit, then SIGKILL. Returns True when it ended by itself."""
    process.signal(first)
    if wait_until(lambda: not process.alive(), limit_seconds):
        return True
    process.signal(signal.SIGKILL)
    wait_until(lambda: not process.alive(), 5)
    return False


def wait_until(condition: Callable[[], bool], limit_seconds: float) -> bool:
    """Poll the condition until it holds (True) or the limit has passed (False)."""
    limit = time.monotonic() + limit_seconds
    while not condition():
        if time.monotonic() >= limit:
            return False
        time.sleep(POLL_SECONDS)
    return True


def spawn(
    command: list[str],
    log: Path,
    *,
    account: Account | None = None,
    environment: dict[str, str] | None = None,
    folder: Path = Path("/"),
    given: int = subprocess.DEVNULL,
    descriptors: tuple[int, ...] = (),
    on_parent_death: signal.Signals = signal.SIGKILL,
) -> "subprocess.Popen[bytes]":
    """Start a child in its own session that cannot outlive us, its output appended to the log. `given`: its input.

    Call it from the main thread: the kernel watches the thread that forked.
    """
    parent = os.getpid()
    with log.open("ab") as output:
        return subprocess.Popen(
            command,
            stdin=given,
            stdout=output,
            stderr=output,
            cwd=folder,
            env=environment,
            pass_fds=descriptors,
            start_new_session=True,
            preexec_fn=lambda: before_exec(parent, on_parent_death),
            **(account.switch if account is not None else {}),
        )


def before_exec(parent: int, on_parent_death: signal.Signals) -> None:
    signal.pthread_sigmask(signal.SIG_SETMASK, ())  # the supervisor blocks what it waits for
    die_with_parent(parent, on_parent_death)


def start(
    command: list[str],
    log: Path,
    account: Account,
    answers: Callable[[], bool],
    on_parent_death: signal.Signals,
) -> "subprocess.Popen[bytes]":
    """Start a server and wait until it answers; for tests, which have no supervisor."""
    child = spawn(command, log, account=account, on_parent_death=on_parent_death)
    if not wait_until(lambda: child.poll() is not None or answers(), START_LIMIT_SECONDS):
        child.kill()
        child.wait()
    if child.poll() is not None:
        raise RuntimeError(
            f"{command[0]} did not start. End of its log:\n{log.read_text(errors='replace')[-2000:]}"
        )
    return child


def die_with_parent(parent: int, number: signal.Signals) -> None:
    """In a child between fork and exec: have the kernel send `number` when the parent is gone.

    Called after a change of user, which would clear the request.
    """
    _libc.prctl(PR_SET_PDEATHSIG, int(number), 0, 0, 0)
    if os.getppid() != parent:  # it ended before the request was in force
        os._exit(1)
