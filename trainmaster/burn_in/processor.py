"""The processor, its memory and a disk: matrix products, copies, wrong results, write and read rates."""

from __future__ import annotations

import os
import threading
import time
from pathlib import Path
from typing import Any, Iterator, List

from trainmaster.burn_in.piece import GIGA, Pace, Result, true_rows

_MIB = 1024 * 1024
_ROWS, _PLAIN_ROWS = 1024, 48
#: every so many rows there is one of whose product the right values are known
_KNOWN_EVERY = 16
_COPIED, _PIPED = 64 * _MIB, 4 * _MIB
_FILE_PIECE = 16 * _MIB
#: the file is at most so large, and there is at least so much space beside it
_FILE_BYTES, _SPACE_BYTES = 512 * _MIB, 2 * 1024 * _MIB
_PATTERNS = (0x55, 0xAA)


def processor(pace: Pace, torch: Any) -> Iterator[Result]:
    """`torch` is the module, or None without PyTorch."""
    yield from _products(pace, torch)
    source, target = memoryview(bytearray(_COPIED)), memoryview(bytearray(_COPIED))

    def copy() -> None:
        target[:] = source

    yield Result("memory", round(pace.per_second(_COPIED / GIGA, copy), 3), model())
    wrong = 0
    for pattern in _PATTERNS:
        pace.check()
        source[:] = bytes([pattern]) * _COPIED
        copy()
        wrong += _COPIED - bytes(target).count(pattern)
    yield Result("wrong_memory", wrong, "")
    yield Result("copy", round(pace.per_second(_PIPED / GIGA, _pipe), 3), model())


def _products(pace: Pace, torch: Any) -> Iterator[Result]:
    if torch is None:
        rows = _PLAIN_ROWS
        left = [[(row * 7 + column) % 3 for column in range(rows)] for row in range(rows)]
        value = pace.per_second(2 * rows**3 / GIGA, lambda: _plain_product(left))
        yield Result("matmul", round(value, 6), f"by Python on {model()}")
        return
    left = torch.randint(0, 2, (_ROWS, _ROWS)).float()  # sums of whole numbers are exact in any order
    first, wrong = left @ left, 0
    truth = true_rows(torch, left.to(torch.int64), range(0, _ROWS, _KNOWN_EVERY)).float()

    def multiply() -> None:
        nonlocal wrong
        product = left @ left
        wrong += int((product[::_KNOWN_EVERY] != truth).sum() + (product != first).sum())

    value = pace.per_second(2 * _ROWS**3 / GIGA, multiply)
    yield Result("matmul", round(value, 3), f"float32 by PyTorch {torch.__version__} on {model()}")
    yield Result("wrong_results", wrong, "")


def _plain_product(left: List[List[int]]) -> List[List[int]]:
    return [[sum(map(int.__mul__, row, other)) for other in left] for row in left]  # by its own transpose


def _pipe() -> None:
    """Send some bytes to another thread through the kernel."""
    reading, writing = os.pipe()
    piece = bytes(_MIB)

    def send() -> None:
        with os.fdopen(writing, "wb", buffering=0) as out:
            for _ in range(_PIPED // _MIB):
                left = memoryview(piece)
                while left:
                    left = left[out.write(left) or 0 :]

    thread = threading.Thread(target=send)
    thread.start()
    with os.fdopen(reading, "rb", buffering=0) as got:
        while got.read(_MIB):
            pass
    thread.join()


def model() -> str:
    """The processor and how many cores this run may use; only figures of the same are compared."""
    name = os.uname().machine
    try:
        for line in Path("/proc/cpuinfo").read_text(errors="replace").splitlines():
            if line.startswith("model name"):
                name = line.partition(":")[2].strip()
                break
    except OSError:
        pass
    return f"{len(os.sched_getaffinity(0))} cores of {name}"


def filesystem(folder: Path) -> str:
    """`ext4 on /dev/sda2`: that of the folder; only figures of the same are compared."""
    device = folder.stat().st_dev
    number = f"{os.major(device)}:{os.minor(device)}"
    try:
        for line in Path("/proc/self/mountinfo").read_text(errors="replace").splitlines():
            mount, _, kind = line.partition(" - ")
            if mount.split()[2:3] == [number]:
                return " on ".join(kind.split()[:2])
    except OSError:
        pass
    return f"device {number}"


def disk(pace: Pace, folder: Path) -> Iterator[Result]:
    """How fast a file is written, with what the disk still has to do, and read again; nothing on a nearly full disk."""
    about = os.statvfs(str(folder))
    if about.f_bavail * about.f_frsize < _FILE_BYTES + _SPACE_BYTES:
        return
    how = filesystem(folder)
    path, piece = folder / "burn-in.tmp", os.urandom(_MIB) * (_FILE_PIECE // _MIB)
    file = os.open(str(path), os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    path.unlink()  # gone with the process, however it ends
    try:
        began, written = time.perf_counter(), 0
        for _ in pace.rounds():
            if written + len(piece) > _FILE_BYTES:
                break
            written += os.write(file, piece)
            os.fsync(file)
        yield Result("disk_write", round(written / (time.perf_counter() - began) / 1e6, 1), how)
        os.posix_fadvise(file, 0, 0, os.POSIX_FADV_DONTNEED)  # else it is the memory that is read
        os.lseek(file, 0, os.SEEK_SET)
        began, got = time.perf_counter(), 0
        for _ in pace.rounds():
            if not (part := len(os.read(file, _FILE_PIECE))):
                break
            got += part
        yield Result("disk_read", round(got / (time.perf_counter() - began) / 1e6, 1), how)
    finally:
        os.close(file)
