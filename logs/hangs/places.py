"""Where a rank stands, out of its Python stack and what the kernel says of its first thread. Pure."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

from logs.hangs.evidence import BY_PY_SPY, ENDED, Told


class Kind(StrEnum):
    ENDED = "ended"
    STOPPED = "stopped"
    DEBUGGER = "debugger"
    MOUNT = "mount"
    KERNEL = "kernel"
    WRITEBACK = "writeback"
    LOADER = "loader"
    COLLECTIVE = "collective"
    LOCK = "lock"
    PIPE = "pipe"
    SOCKET = "socket"
    CHILD = "child"
    FILE = "file"
    SLEEP = "sleep"
    COMPUTING = "computing"
    UNKNOWN = "unknown"


@dataclass(frozen=True)
class Place:
    """`words` continue "it …"; `collective` is the name of the function of torch.distributed that it is in."""

    kind: Kind
    words: str
    collective: str = ""


class Frame(NamedTuple):
    file: str
    line: str
    function: str

    @property
    def base(self) -> str:
        return self.file.rpartition("/")[2]


_FRAME = re.compile(
    r'^  File "(?P<file>[^"\n]{0,4096})", line (?P<line>\d{1,9}|\?+) in (?P<function>[^\n]{1,300})$'
)
_LIBRARY = re.compile(
    r"/(?:site|dist)-packages/|/lib(?:64)?/python3|^<|(?:^|/)trainmaster/(?:launch|compat)/"
)
_DEBUGGERS = ("pdb.py", "bdb.py", "debugger.py", "pydevd.py", "pydevd_frame.py")
_NETWORK = ("socket.py", "ssl.py", "client.py", "connection.py", "connectionpool.py", "selectors.py")
_MOUNTS = re.compile(
    r"fuse|request_wait_answer|nfs|rpc_wait|cifs|smb_|smb2|ceph|lustre|cl_sync_io|^osc_|gfs|^ll_"
)
_PIPES = re.compile(r"pipe_|fifo_open|wait_for_partner")
#: What is written is on its way, however long that takes; a page fault and a call without a name may be of it too.
_WRITEBACK = re.compile(
    r"writeback|wb_|sync|jbd2|balance_dirty|commit|log_force|wait_on_page_bit|folio_wait_bit"
)
_READING_CALLS = (
    "read", "pread64", "readv", "open", "openat", "stat", "lstat", "newfstatat", "statx", "access", "getdents64",
)  # fmt: skip
_LOCKS = re.compile(r"locks_lock|flock|posix_lock|fcntl_setlk")
_IDLE_THREADS = {
    ("threading.py", "wait"), ("threading.py", "_wait_for_tstate_lock"), ("queue.py", "get"), ("thread.py", "_worker"),
}  # fmt: skip
_WAITING_CALLS = ("poll", "ppoll", "select", "pselect6", "epoll_wait", "epoll_pwait")
_SOCKET_CALLS = ("recvfrom", "recvmsg", "sendto", "sendmsg", "connect", "accept", "accept4")
_FILE_CALLS = ("read", "pread64", "readv", "write", "pwrite64", "writev", "fsync", "openat", "newfstatat")


def place_of(told: Told) -> Place:
    frames = frames_of(told.text)
    for rule in (_process, _mount, _python, _kernel):
        if place := rule(told, frames):
            return Place(place.kind, f"{place.words}{_line(frames)}", place.collective)
    return Place(Kind.UNKNOWN, told.message or f"is in a place that it does not tell{_line(frames)}")


def frames_of(text: str) -> list[Frame]:
    """The stack of the main thread, the innermost call first: the last thread that the interpreter writes."""
    return _threads(text)[-1]


def _threads(text: str) -> list[list[Frame]]:
    threads: list[list[Frame]] = [[]]
    for line in text.partition(BY_PY_SPY)[0].split("\n"):
        if line.startswith(("Thread 0x", "Current thread 0x")):
            threads.append([])
        elif match := _FRAME.match(line):
            threads[-1].append(Frame(match["file"], match["line"], match["function"]))
    return threads


def only_waits(told: Told) -> bool:
    """Whether its main thread is in a collective, and each other thread waits for a thread of the same process.

    A thread without frames of Python is one of a library.
    """
    own, others = frames_of(told.text), _threads(told.text)[:-1]
    idle = all(not frames or (frames[0].base, frames[0].function) in _IDLE_THREADS for frames in others)
    return place_of(told).kind == Kind.COLLECTIVE and bool(own) and idle and not talks(told.text)


def talks(text: str) -> bool:
    """Whether any thread is in code of the network: what it waits for may be under way."""
    return any(
        match["file"].rpartition("/")[2] in ("socket.py", "ssl.py")
        for line in text.split("\n")
        if (match := _FRAME.match(line))
    )


def _process(told: Told, frames: Sequence[Frame]) -> Place | None:
    if told.state == ENDED:
        return Place(Kind.ENDED, "has ended")
    if told.state == "T":
        return Place(Kind.STOPPED, f"is stopped (process {told.pid}, state T)")
    if told.state == "t" or any(frame.base in _DEBUGGERS for frame in frames):
        return Place(Kind.DEBUGGER, "is held by a debugger")
    return None


def _mount(told: Told, frames: Sequence[Frame]) -> Place | None:
    where = f" ({told.file})" if told.file.startswith("/") else ""
    blocked = bool(_MOUNTS.search(told.waits_in)) or told.state == "D"
    if blocked and (told.call not in _READING_CALLS or _WRITEBACK.search(told.waits_in)):
        place = f"waits in the kernel{where}, in {told.waits_in or told.call or 'an unknown place'}"
        return Place(Kind.WRITEBACK, f"{place}, and may be writing")
    if _MOUNTS.search(told.waits_in):
        return Place(Kind.MOUNT, f"waits for a mounted file system{where}, in {told.waits_in}")
    if told.state == "D":
        return Place(Kind.KERNEL, f"is blocked in the kernel{where}, in {told.waits_in or told.call}")
    return None


def _python(told: Told, frames: Sequence[Frame]) -> Place | None:
    """What the innermost Python calls say; of a library before what it uses."""
    if any(frame.file.endswith("torch/utils/data/dataloader.py") for frame in frames):
        return Place(Kind.LOADER, "waits for its data loader")
    for frame in frames:
        if frame.base == "distributed_c10d.py" and not frame.function.startswith("_"):
            return Place(Kind.COLLECTIVE, f"is in {frame.function}", frame.function)
    top = frames[0] if frames else Frame("", "", "")
    if top.file.endswith("torch/autograd/graph.py"):
        return Place(Kind.COLLECTIVE, "is in its backward pass")
    if told.call in ("flock", "fcntl") or _LOCKS.search(told.waits_in) or "filelock" in top.file:
        return Place(Kind.LOCK, f"waits for a lock on {told.file or 'a file'}")
    if _PIPES.search(told.waits_in) or told.file.startswith("pipe:"):
        named = told.file if told.file.startswith("/") else "that nobody writes to"
        return Place(Kind.PIPE, f"reads a pipe, {named}")
    if told.call in _SOCKET_CALLS or told.file.startswith("socket:") or top.base in _NETWORK:
        return Place(Kind.SOCKET, "waits for an answer from the network")
    if told.call in ("wait4", "waitid") or top.base in ("subprocess.py", "popen_fork.py"):
        return Place(Kind.CHILD, "waits for a process that it has started")
    if told.call == "futex" or top.base in ("threading.py", "queue.py", "synchronize.py"):
        return Place(Kind.LOCK, "waits for a lock or another thread")
    return None


def _kernel(told: Told, frames: Sequence[Frame]) -> Place | None:
    if told.call in ("nanosleep", "clock_nanosleep") or (told.call in _WAITING_CALLS and not frames):
        return Place(Kind.SLEEP, "sleeps")
    if told.call in _WAITING_CALLS:
        return Place(Kind.SLEEP, "sleeps or waits for events")
    if told.call in _FILE_CALLS:
        return Place(Kind.FILE, f"waits for {told.file or 'a file'}")
    if told.state == "R" or (told.state and not told.call and frames):
        return Place(Kind.COMPUTING, "computes")
    return None


def _line(frames: Sequence[Frame]) -> str:
    """The innermost line of the program's own."""
    own = next((frame for frame in frames if not _LIBRARY.search(frame.file)), None) or (
        frames[0] if frames else None
    )
    return f", at {own.file} line {own.line} in {own.function}" if own else ""
