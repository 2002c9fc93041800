"""Copies what a rank of a detached run writes to where it went before, and into the run's spool.

A process of its own, started by the rank with pipes in place of its stdout and stderr: it has every byte even when
the rank is killed, and no Python thread of a training has to wait for it. It is run by its path, without the package:
`tee.py LOCK CONTROL SOURCE ORIGINAL FILE [SOURCE ORIGINAL FILE]`, all but the files being numbers of descriptors.
"""

from __future__ import annotations

import errno
import fcntl
import os
import select
import signal
import sys
import threading
import time
from collections import deque
from typing import Deque, List, Optional

_READ_BYTES = 64 * 1024
#: what a slow terminal is behind; beyond it the writer waits, as it would have without us
_QUEUED_BYTES = 4 * 1024 * 1024
_DRAIN_READS = 64  # a pipe holds 1 MiB at most: what children write meanwhile is not waited for
_DRAIN_SECONDS = 5.0


class Stream:
    """One stream of the rank: `source` is the pipe's end, `original` where the stream went before."""

    def __init__(self, source: int, original: int, file: str) -> None:
        self.source = source
        os.set_blocking(source, False)
        self._original = original
        self._file = os.open(file, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
        self._dropped = 0
        self._queue: Deque[bytes] = deque()
        self._queued = 0
        self._news = threading.Condition()
        self.ended = False
        threading.Thread(target=self._write, daemon=True).start()

    def has_room(self) -> bool:
        return self._queued < _QUEUED_BYTES

    def read(self) -> bool:
        """Take what is there. False: nothing is, or the last writer has gone."""
        try:
            data = os.read(self.source, _READ_BYTES)
        except BlockingIOError:
            return False
        if not data:
            self.ended = True
            return False
        self._keep(data)
        with self._news:
            self._queue.append(data)
            self._queued += len(data)
            self._news.notify_all()
        return True

    def flush(self, deadline: float) -> None:
        """Until all is where it went before, or the monotonic `deadline`."""
        with self._news:
            self._news.wait_for(lambda: self._queued == 0, max(0.0, deadline - time.monotonic()))

    def _keep(self, data: bytes) -> None:
        """A full disk costs these bytes, and they are counted."""
        if self._dropped:
            note = f"ERROR: trainmaster: {self._dropped} bytes of this stream could not be kept.\n"
            data = note.encode() + data
        try:
            written = os.write(self._file, data)
        except OSError:
            written = 0
        self._dropped = self._dropped + len(data) if written == 0 else len(data) - written

    def _write(self) -> None:
        gone = False
        while True:
            with self._news:
                self._news.wait_for(lambda: bool(self._queue))
                data = self._queue[0]
            # nobody reads there any more: the spool still does
            gone = gone or not _write_all(self._original, data)
            with self._news:
                self._queue.popleft()
                self._queued -= len(data)
                self._news.notify_all()


def _write_all(descriptor: int, data: bytes) -> bool:
    """False when it cannot be written any more."""
    view = memoryview(data)
    while view:
        try:
            view = view[os.write(descriptor, view) :]
        except BlockingIOError:
            room = select.poll()  # unlike select() it takes descriptors from 1024 on
            room.register(descriptor, select.POLLOUT)
            room.poll(1000)
        except OSError as error:
            return error.errno in (errno.ENOSPC, errno.EDQUOT)  # on a full disk later bytes may fit again
    return True


def copy(streams: List[Stream], control: Optional[int]) -> None:
    """Until no process has the streams open any more. A byte from `control` asks to bring over what is there now."""
    while not all(stream.ended for stream in streams):
        open_ones = {stream.source: stream for stream in streams if not stream.ended}
        ready = select.poll()
        for source, stream in open_ones.items():
            if stream.has_room():
                ready.register(source, select.POLLIN)
        if control is not None:
            ready.register(control, select.POLLIN)
        for descriptor, _ in ready.poll(200 if not all(s.has_room() for s in open_ones.values()) else None):
            if descriptor == control:
                control = _drained(streams, control)
            else:
                open_ones[descriptor].read()
    deadline = time.monotonic() + 60 * _DRAIN_SECONDS
    for stream in streams:
        stream.flush(deadline)


def _drained(streams: List[Stream], control: int) -> Optional[int]:
    """Do what was asked for and say so; None when the one who may ask has gone."""
    try:
        asked = os.read(control, 1)
    except OSError:
        asked = b""
    if not asked:
        return None
    for stream in streams:
        reads = 0
        while reads < _DRAIN_READS and stream.read():
            reads += 1
    deadline = time.monotonic() + _DRAIN_SECONDS
    for stream in streams:
        stream.flush(deadline)
    try:
        os.write(control, b"d")
    except OSError:
        return None
    return control


def main(arguments: List[str]) -> int:
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT):
        signal.signal(number, signal.SIG_IGN)  # it ends with those who write, and has their last words
    lock, control, *rest = arguments
    held = os.open(lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    fcntl.flock(held, fcntl.LOCK_EX)  # free again: all that was written is in the spool
    streams = [Stream(int(rest[at]), int(rest[at + 1]), rest[at + 2]) for at in range(0, len(rest), 3)]
    copy(streams, int(control))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
