"""The journal of records: appended by one thread, read by the shipper, its shipped part given back to the disk."""

from __future__ import annotations

import ctypes
import errno
import json
import os
import threading
import weakref
from typing import Any, Dict, Optional, TypedDict, cast

from trainmaster.jsonfile import read_json, write_json
from trainmaster.paths import RunPaths
from trainmaster.protocol import FirstFailure
from trainmaster.runner.records import earlier, filler

_BLOCK = 4096
_SCAN_BYTES = 1024 * 1024
_FALLOC_FL_KEEP_SIZE = 1
_FALLOC_FL_PUNCH_HOLE = 2


class IndexFile(TypedDict):
    """What the first `at` bytes of the outbox say, so that a new runner need not read them (they may be freed)."""

    at: int
    freed: int
    ends: Dict[str, int]
    dropped: int
    first_failure: Optional[FirstFailure]
    running: bool
    exited: bool


class Outbox:
    """The journal and what it says: how far each source is covered, and how the run stands.

    `size` is the end of the last whole record; bytes before `freed` are gone and read as one gap record.
    """

    def __init__(self, paths: RunPaths) -> None:
        self._paths = paths
        self._descriptor = os.open(paths.outbox, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        weakref.finalize(self, os.close, self._descriptor)
        self._lock = threading.Lock()
        self.grown = threading.Condition()
        self.ends: Dict[str, int] = {}
        self.dropped = 0
        self.first_failure: Optional[FirstFailure] = None
        self.running = False
        self.exited = False
        self.freed = 0
        self._sources_freed = 0
        self.size = self._recover()

    def append(self, records: bytes) -> None:
        """Add whole records; OSError (a full disk) leaves the journal as it was."""
        with self._lock:
            try:
                self._write(records)
            except OSError:
                os.ftruncate(self._descriptor, self.size)
                raise
            self.size += len(records)
        with self.grown:
            self.grown.notify_all()

    def read(self, offset: int, limit: int) -> bytes:
        """Whole records from `offset` on, at most `limit` bytes of them unless the first alone is longer."""
        if offset < self.freed:
            return filler(min(self.freed - offset, limit))
        available = self.size - offset
        size = min(limit, available)
        while size > 0:
            data = os.pread(self._descriptor, size, offset)
            last = data.rfind(b"\n") if size <= limit else data.find(b"\n")
            if last >= 0:
                return data[: last + 1]
            size = min(size * 2, available) if size < available else 0
        return b""

    def skip_to(self, offset: int) -> None:
        """The server has more than this journal, which lost its end with the host's memory: go on from there."""
        with self._lock:
            if offset > self.size:
                os.ftruncate(self._descriptor, offset)
                self.size = self.freed = offset

    def note(self, record: Dict[str, Any]) -> None:
        """Take over what a record says."""
        kind = record.get("k")
        if isinstance(record.get("f"), str) and isinstance(record.get("e"), int):
            self.ends[record["f"]] = record["e"]
        if kind == "gap":
            self.dropped += record["bytes"]
        elif kind == "core" and record["d"].get("type") == "rank_failed":
            self.first_failure = earlier(self.first_failure, record["d"])
        elif kind == "state":
            self.running = True
        elif kind == "exit":
            self.exited = True

    def save_index(self, durable: bool = True) -> None:
        """Keep what the journal says, which is on the disk first: not needed where the server has all of it."""
        if durable:
            os.fdatasync(self._descriptor)
        index: IndexFile = {
            "at": self.size,
            "freed": self.freed,
            "ends": self.ends,
            "dropped": self.dropped,
            "first_failure": self.first_failure,
            "running": self.running,
            "exited": self.exited,
        }
        write_json(self._paths.index, index)

    def freeable(self, shipped: int) -> int:
        """How many bytes `free` would give back."""
        return max(0, shipped - self.freed) + sum(self.ends.values()) - self._sources_freed

    def free(self, shipped: int) -> None:
        """Give the blocks of what is shipped, and of the sources that the journal covers, back to the disk.

        The index is written first: a runner started anew must not need what is freed here.
        """
        self._sources_freed = sum(self.ends.values())
        self.freed = max(self.freed, min(shipped, self.size))
        self.save_index(durable=self.freed < self.size)
        punch(self._descriptor, self.freed)
        for name, end in self.ends.items():
            source = self._paths.spool / name
            try:
                descriptor = os.open(source, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
            except OSError:
                continue
            # else it was cut short, and this is not what the journal covers
            if os.fstat(descriptor).st_size >= end:
                punch(descriptor, end - 1)  # its last byte tells whether a `\\n` belongs to a `\\r` before it
            os.close(descriptor)

    def _write(self, records: bytes) -> None:
        view, at = memoryview(records), self.size
        while view:
            written = os.pwrite(self._descriptor, view, at)
            view, at = view[written:], at + written

    def _recover(self) -> int:
        """Read what the index does not cover, cut a torn last record, and return the journal's size."""
        index = cast(Optional[IndexFile], read_json(self._paths.index))
        length = os.fstat(self._descriptor).st_size
        position = 0
        if index is not None:
            position, self.freed, self.ends = index["at"], index["freed"], dict(index["ends"])
            self.dropped, self.first_failure = index["dropped"], index["first_failure"]
            self.running, self.exited = index["running"], index["exited"]
        # lost with the host's memory: all of it was shipped, or it would be on the disk
        if length < position:
            os.ftruncate(self._descriptor, position)
            self.freed = position
        rest = b""
        while True:
            data = os.pread(self._descriptor, _SCAN_BYTES, position + len(rest))
            if not data:
                break
            *lines, rest = (rest + data).split(b"\n")
            for line in lines:
                position += len(line) + 1
                self._note_line(line)
        if rest:
            os.ftruncate(self._descriptor, position)
        return position

    def _note_line(self, line: bytes) -> None:
        try:
            record = json.loads(line.lstrip(b"\0"))
        except (ValueError, RecursionError):
            return  # torn by a crash of the host: its source will be read again from the record before
        self.note(record)


def punch(descriptor: int, end: int) -> None:
    """Free the whole blocks before `end`; where the file system cannot, they stay until the run is removed."""
    length = end // _BLOCK * _BLOCK
    if length <= 0:
        return
    try:
        fallocate = ctypes.CDLL(None, use_errno=True).fallocate
    except (OSError, AttributeError):
        return
    fallocate.argtypes = [ctypes.c_int, ctypes.c_int, ctypes.c_int64, ctypes.c_int64]
    mode = _FALLOC_FL_PUNCH_HOLE | _FALLOC_FL_KEEP_SIZE
    while fallocate(descriptor, mode, 0, length) != 0 and ctypes.get_errno() == errno.EINTR:
        pass
