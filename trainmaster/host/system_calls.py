"""What the kernel says of a process beside its Python stack: the call and file that it waits in, the bytes it moved."""

from __future__ import annotations

import os
import platform
from pathlib import Path
from typing import Dict, Iterable, Optional, Tuple

from trainmaster.processes import PROC

#: number -> name, of calls that may wait for long; those of _ON_FILES have a descriptor as their first argument
_X86_64 = {
    0: "read", 1: "write", 2: "open", 3: "close", 4: "stat", 6: "lstat", 7: "poll", 17: "pread64", 18: "pwrite64",
    19: "readv", 20: "writev", 21: "access", 23: "select", 26: "msync", 35: "nanosleep", 42: "connect", 43: "accept",
    44: "sendto", 45: "recvfrom", 46: "sendmsg", 47: "recvmsg", 61: "wait4", 72: "fcntl", 73: "flock", 74: "fsync",
    75: "fdatasync", 162: "sync", 202: "futex", 217: "getdents64", 230: "clock_nanosleep", 232: "epoll_wait",
    247: "waitid", 257: "openat", 262: "newfstatat", 270: "pselect6", 271: "ppoll", 277: "sync_file_range",
    281: "epoll_pwait", 288: "accept4", 306: "syncfs", 332: "statx",
}  # fmt: skip
_ARM64 = {
    22: "epoll_pwait", 25: "fcntl", 32: "flock", 56: "openat", 57: "close", 61: "getdents64", 63: "read", 64: "write",
    65: "readv", 66: "writev", 67: "pread64", 68: "pwrite64", 72: "pselect6", 73: "ppoll", 79: "newfstatat",
    81: "sync", 82: "fsync", 83: "fdatasync", 84: "sync_file_range", 95: "waitid", 98: "futex", 101: "nanosleep",
    115: "clock_nanosleep", 202: "accept", 203: "connect", 206: "sendto", 207: "recvfrom", 211: "sendmsg",
    212: "recvmsg", 227: "msync", 242: "accept4", 260: "wait4", 267: "syncfs", 291: "statx",
}  # fmt: skip
_NAMES: Dict[str, Dict[int, str]] = {"x86_64": _X86_64, "aarch64": _ARM64}
_ON_FILES = frozenset((
    "read", "write", "pread64", "pwrite64", "readv", "writev", "connect", "accept", "accept4", "sendto", "recvfrom",
    "sendmsg", "recvmsg", "fcntl", "flock", "fsync", "fdatasync", "getdents64",
))  # fmt: skip


def waiting_call(pid: int) -> Tuple[str, str]:
    """(name of the call that the process's first thread is in, its file); empty where nobody knows."""
    try:
        words = Path(PROC, str(pid), "syscall").read_text("ascii", "replace").split()
        name = _NAMES.get(platform.machine(), {}).get(int(words[0]), "")
        if name not in _ON_FILES:
            return name, ""
        return name, os.readlink(f"{PROC}/{pid}/fd/{int(words[1], 16)}")  # noqa: PTH115
    except (OSError, ValueError, IndexError):  # `running`, gone, or another account's
        return "", ""


def moved_bytes(pids: Iterable[int]) -> Optional[int]:
    """What the processes have read and written so far, through files and pipes; None if it is not known of all."""
    total = 0
    for pid in pids:
        try:
            lines = Path(PROC, str(pid), "io").read_text("ascii", "replace").splitlines()
            total += sum(int(line.split()[1]) for line in lines if "char" in line or "_bytes" in line)
        except (OSError, ValueError, IndexError):  # gone, or another account's
            return None
    return total
