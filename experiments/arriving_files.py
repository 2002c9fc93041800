"""Files of checkpoints on the server's disk, whole or in parts: written aside, made durable, renamed into place."""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import tempfile
import threading
import uuid
from collections import OrderedDict
from pathlib import Path
from typing import BinaryIO

from accounts.refusals import Code, Refusal
from experiments import stored_files

#: of a relative path, UTF-8
PATH_BYTES_MAX = 1024
_HASHES_MAX = 256


def place(checkpoint_uuid: uuid.UUID, path: str) -> Path:
    """Where the checkpoint's file of this relative path lies. Raises Refusal."""
    return stored_files.own_root().joinpath(str(checkpoint_uuid), *names_of(path))


def names_of(path: str) -> list[str]:
    """The parts of a relative path that leads nowhere else. Raises Refusal."""
    parts = path.split("/")
    sound = all(part not in {"", ".", ".."} and len(os.fsencode(part)) <= 255 for part in parts)
    if not sound or "\0" in path or len(os.fsencode(path)) > PATH_BYTES_MAX:
        raise Refusal(f"The file name {path!r} is not allowed: it must be relative, without '.' and '..'.")
    return parts


class Incoming:
    """One file that arrives. `keep` puts it in its place; else nothing stays. Blocking: use a thread."""

    def __init__(self) -> None:
        aside = stored_files.incoming()
        aside.mkdir(parents=True, exist_ok=True, mode=0o700)
        self._descriptor, name = tempfile.mkstemp(dir=aside)  # readable by the server's account alone
        self._path = Path(name)
        self._hashed = hashlib.sha256()
        self._file: BinaryIO = os.fdopen(self._descriptor, "wb", buffering=0)

    @property
    def sha256(self) -> str:
        return self._hashed.hexdigest()

    def write(self, block: bytes) -> None:
        self._hashed.update(block)
        view = memoryview(block)
        while view:
            view = view[self._file.write(view) :]

    def keep(self, target: Path) -> None:
        """Durable when this returns: the bytes, and the name in each new folder."""
        os.fsync(self._descriptor)
        self._file.close()
        move_into_place(self._path, target)

    def discard(self) -> None:
        self._file.close()
        self._path.unlink(missing_ok=True)


def move_into_place(path: Path, target: Path) -> None:
    """Rename a file that is durable; its name is so, too, when this returns."""
    new_folders = [each for each in (target.parent, *target.parent.parents) if not each.exists()]
    target.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    path.replace(target)
    for each in {target.parent, *(folder.parent for folder in new_folders)}:
        _sync_folder(each)


def _sync_folder(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def make_folders(checkpoint_uuid: uuid.UUID, paths: list[str]) -> None:
    """Folders of the record ("name/"), which may be empty and so are in no file's path."""
    for path in paths:
        place(checkpoint_uuid, path.rstrip("/")).mkdir(parents=True, exist_ok=True, mode=0o700)


def has(target: Path, size: int) -> bool:
    return target.is_file() and target.stat().st_size == size


def require_space(size: int) -> None:
    """Raises Refusal (FULL) unless so many bytes are free where checkpoints are kept."""
    base = stored_files.own_root()
    base.mkdir(parents=True, exist_ok=True, mode=0o700)
    if size > shutil.disk_usage(base).free:
        raise Refusal(f"The server's disk does not have {size:,} bytes of free space.", Code.FULL)


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
    """One file that arrives in parts, opened for one request. `close` it, whatever happens. Blocking: use a thread.

    What has come stays through cut connections and restarts of this process: it grows in `checkpoints/.incoming/` until
    it is whole and its SHA-256 is the sender's; then it is renamed into its place. One request at a time may append (a
    lock on the file, so whatever process it comes to).
    """

    def __init__(self, checkpoint_uuid: uuid.UUID, path: str) -> None:
        """Raises Refusal (BUSY) while another request appends to it."""
        self._path = where(checkpoint_uuid, path)
        self._path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        self._descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        if not self._is_ours():
            os.close(self._descriptor)
            raise Refusal("A part of this file is still arriving over another connection.", Code.BUSY)
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
        try:
            move_into_place(self._path, target)
        except (FileExistsError, NotADirectoryError, IsADirectoryError):
            self.discard()  # its place is taken, and whoever sends it again is to hear that again
            raise
        self._kept = True

    def discard(self) -> None:
        """What has arrived is unusable; the file starts again."""
        os.ftruncate(self._descriptor, 0)
        self.size, self._hashed = 0, hashlib.sha256()

    def close(self) -> None:
        if not self._kept:
            _hashes.give_back(self._path, self.size, self._hashed)
        os.close(self._descriptor)


def where(checkpoint_uuid: uuid.UUID, path: str) -> Path:
    name = hashlib.sha256(path.encode("utf-8", "surrogateescape")).hexdigest()[:32]
    return stored_files.incoming() / f"{checkpoint_uuid}.{name}"


def arrived(checkpoint_uuid: uuid.UUID, path: str) -> int:
    """How many bytes of the file have come."""
    try:
        return where(checkpoint_uuid, path).stat().st_size
    except FileNotFoundError:
        return 0
