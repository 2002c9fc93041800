"""Files of checkpoints on the server's disk: written aside, made durable, then renamed into place."""

from __future__ import annotations

import hashlib
import os
import shutil
import tempfile
import uuid
from pathlib import Path
from typing import BinaryIO

from experiments import stored_folders
from webui.runner_api import limits
from webui.runner_api.answers import RefusedRequest


def place(checkpoint_uuid: uuid.UUID, path: str) -> Path:
    """Where the checkpoint's file of this relative path lies. Raises RefusedRequest (400)."""
    return stored_folders.own_root().joinpath(str(checkpoint_uuid), *names_of(path))


def names_of(path: str) -> list[str]:
    """The parts of a relative path that leads nowhere else. Raises RefusedRequest (400)."""
    parts = path.split("/")
    sound = all(part not in {"", ".", ".."} and len(os.fsencode(part)) <= 255 for part in parts)
    if not sound or "\0" in path or len(os.fsencode(path)) > limits.PATH_BYTES_MAX:
        raise RefusedRequest(
            400,
            f"The file name {path!r} is not allowed: it must be relative, without '.' and '..'.",
        )
    return parts


class Incoming:
    """One file that arrives. `keep` puts it in its place; else nothing stays. Blocking: use a thread."""

    def __init__(self) -> None:
        aside = stored_folders.incoming()
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
    """Raises RefusedRequest (507) unless so many bytes are free where checkpoints are kept."""
    base = stored_folders.own_root()
    base.mkdir(parents=True, exist_ok=True, mode=0o700)
    if size > shutil.disk_usage(base).free:
        raise RefusedRequest(
            507, f"The server's disk does not have {size:,} bytes of free space.", retry_after=60
        )
