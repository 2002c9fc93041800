"""Files that arrive in parts: what has come stays through cut connections and restarts of this process.

Each grows in `checkpoints/.incoming/` until it is whole and its SHA-256 is the sender's; then it is renamed into its
place. One request at a time may append (a lock on the file, so whatever process it comes to). Blocking: use a thread.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import threading
import uuid
from collections import OrderedDict
from pathlib import Path

from experiments import stored_folders
from webui.runner_api import files
from webui.runner_api.answers import RefusedRequest

_HASHES_MAX = 256


class WrongDigest(Exception):
    """What has arrived is not what was sent; `found` is its SHA-256. It has been thrown away."""

    def __init__(self, found: str) -> None:
        super().__init__(f"The file has the SHA-256 {found} on the server.")
        self.found = found


class Hashes:
    """SHA-256 so far of files that grow. What this process did not see arriving is read again from the disk."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._known: OrderedDict[Path, tuple[int, hashlib._Hash]] = OrderedDict()

    def take(self, path: Path, size: int) -> hashlib._Hash:
        with self._lock:
            known_size, known = self._known.pop(path, (-1, hashlib.sha256()))
        if known_size == size:
            return known
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256")

    def give_back(self, path: Path, size: int, hashed: hashlib._Hash) -> None:
        with self._lock:
            self._known[path] = size, hashed
            while len(self._known) > _HASHES_MAX:
                self._known.popitem(last=False)


_hashes = Hashes()


class GrowingFile:
    """One file, opened for one request. `close` it, whatever happens."""

    def __init__(self, checkpoint_uuid: uuid.UUID, path: str) -> None:
        """Raises RefusedRequest (503) while another request appends to it."""
        self._path = where(checkpoint_uuid, path)
        self._path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        self._descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        if not self._is_ours():
            os.close(self._descriptor)
            raise RefusedRequest(
                503, "A part of this file is still arriving over another connection.", retry_after=1
            )
        self.size = os.fstat(self._descriptor).st_size
        self._kept = False
        self._hashed = _hashes.take(self._path, self.size) if self.size else hashlib.sha256()

    def _is_ours(self) -> bool:
        """Whether it is locked, and still the file of this name: another request may have put it into its place."""
        try:
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return os.path.samestat(os.fstat(self._descriptor), self._path.stat())
        except (BlockingIOError, FileNotFoundError):
            return False

    def write(self, block: bytes) -> None:
        view = memoryview(block)
        while view:
            written = os.write(self._descriptor, view)
            self._hashed.update(view[:written])
            self.size += written
            view = view[written:]

    def keep(self, target: Path, sha256: str) -> None:
        """It is whole: durable in its place when this returns. Raises WrongDigest."""
        found = self._hashed.hexdigest()
        if found != sha256:
            self.discard()
            raise WrongDigest(found)
        os.fsync(self._descriptor)
        self._kept = True
        files.move_into_place(self._path, target)

    def discard(self) -> None:
        """What has come is no use; the file begins anew."""
        os.ftruncate(self._descriptor, 0)
        self.size, self._hashed = 0, hashlib.sha256()

    def close(self) -> None:
        if not self._kept:
            _hashes.give_back(self._path, self.size, self._hashed)
        os.close(self._descriptor)


def where(checkpoint_uuid: uuid.UUID, path: str) -> Path:
    name = hashlib.sha256(path.encode("utf-8", "surrogateescape")).hexdigest()[:32]
    return stored_folders.incoming() / f"{checkpoint_uuid}.{name}"


def arrived(checkpoint_uuid: uuid.UUID, path: str) -> int:
    """How many bytes of the file have come."""
    try:
        return where(checkpoint_uuid, path).stat().st_size
    except FileNotFoundError:
        return 0
