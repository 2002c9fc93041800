"""The stored files of checkpoints, whatever their storage, as far as the server itself can reach them.

It reaches its own store (`server`), `s3` with keys that it has (the config's or its own settings'), and folders
(`shared_fs`, `directory`) below the paths in `TRAINMASTER_MOUNTED`, which says that the server mounts them too.
For all others `NotHere` is raised, whose sentence says where the files are; dispatch.keeping.deletion deletes those
on a host that reaches them.

`store_of(checkpoint)` is where they lie, with

    .listing() -> {path: bytes}          what lies there now, by relative paths with `/`; empty when there is none
    .open_file(path, offset=0)           a binary file for reading in pieces (shutil.copyfileobj); the caller closes it
    .signed_url(path) -> str | None      an address that anybody can download the file from for
                                         `s3_stores.DOWNLOAD_SECONDS`; None: stream it yourself
    .delete(paths=None)                  remove these files (of `resources`), or all; what is gone already is fine

All of them block (disk or network): never inside a transaction, and in async code by `webui.waiting.threads.on_files`.
`checkpoint` needs its `trial.experiment` (select_related). Errors are OSErrors whose text is a sentence:
FileNotFoundError where there is no such file, ConnectionError where a storage does not answer, PermissionError where
the server may not ask it, NotHere.
"""

from __future__ import annotations

import os
import shutil
import stat
from collections.abc import Collection, Iterator
from pathlib import Path, PurePosixPath
from typing import Any, BinaryIO

from django.conf import settings

from experiments import s3_stores
from experiments.models import Checkpoint
from experiments.s3_stores import NotHere as NotHere
from experiments.s3_stores import S3Store

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


class Folder:
    """The files of one checkpoint below `root`. Links are not followed: whoever trains may have laid them there."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def listing(self) -> dict[str, int]:
        return {path.relative_to(self.root).as_posix(): size for path, size in _files_of(self.root)}

    def open_file(self, path: str, offset: int = 0) -> BinaryIO:
        descriptor = _open_beneath(self.root, PurePosixPath(path).parts)
        file = os.fdopen(descriptor, "rb")
        file.seek(offset)
        return file

    def signed_url(self, path: str) -> str | None:
        return None

    def delete(self, paths: Collection[str] | None = None) -> None:
        if paths is None:
            if self.root.is_dir():  # shutil.rmtree refuses a link and follows none
                shutil.rmtree(self.root)
            return
        for path in sorted(paths, reverse=True):  # what is inside a folder goes before it
            self._remove(path)

    def _remove(self, path: str) -> None:
        parts = PurePosixPath(path).parts
        try:
            parent = _open_folders(self.root, parts[:-1])
        except FileNotFoundError:
            return
        try:
            (os.rmdir if path.endswith("/") else os.unlink)(parts[-1], dir_fd=parent)
        except FileNotFoundError:
            return
        finally:
            os.close(parent)


class OwnFolder(Folder):
    """In the server's own store, where parts of files that never came in full may lie aside."""

    def delete(self, paths: Collection[str] | None = None) -> None:
        super().delete(paths)
        if paths is None:
            for part in incoming().glob(f"{self.root.name}.*"):
                part.unlink(missing_ok=True)


def store_of(checkpoint: Checkpoint) -> Folder | S3Store:
    """Raises NotHere when the server cannot reach it."""
    kind = checkpoint.storage.get("type", "server")
    if kind == "server":
        return OwnFolder(own_root() / str(checkpoint.pk))
    if kind == "s3":
        return s3_stores.store_of(checkpoint)
    if kind in ("shared_fs", "directory"):
        return _mounted(checkpoint)
    raise NotHere(f"Checkpoint {checkpoint.pk} is in {kind} storage, which only hosts can reach.")


def own_root() -> Path:
    return Path(settings.DATA_DIR) / "checkpoints"


def incoming() -> Path:
    """Where files lie until they are whole: `<uuid>.<digest of the path>`, and those of old runners."""
    return own_root() / ".incoming"


def _mounted(checkpoint: Checkpoint) -> Folder:
    """In a folder of the hosts. Raises NotHere unless the server mounts it at the same path (TRAINMASTER_MOUNTED)."""
    folder = folder_of(checkpoint.storage)
    place = Path(os.path.realpath(folder))
    if not any(place.is_relative_to(os.path.realpath(each)) for each in settings.MOUNTED):
        raise NotHere(
            f"The files of checkpoint {checkpoint.pk} are on the hosts that trained it, in {folder}/{checkpoint.pk}; "
            "the server can read them if it mounts this folder and TRAINMASTER_MOUNTED lists it."
        )
    return Folder(place / str(checkpoint.pk))


def folder_of(section: dict[str, Any]) -> PurePosixPath:
    """The folder on the hosts that a `shared_fs` or `directory` section names. Raises NotHere when it names none."""
    kind = section.get("type")
    base = section.get("container_path" if kind == "directory" else "host_path")
    below = section.get("storage_path") if kind == "shared_fs" else None
    folder = PurePosixPath(str(base or "")) / str(below or "")
    if not base or not folder.is_absolute() or ".." in folder.parts:
        raise NotHere(
            f"The checkpoint's record names {str(folder)!r} as its folder, which is not an absolute path."
        )
    return folder


def _files_of(root: Path) -> Iterator[tuple[Path, int]]:
    for folder, _, names in os.walk(root):
        for name in names:
            status = (path := Path(folder, name)).lstat()
            if stat.S_ISREG(status.st_mode):
                yield path, status.st_size


def _open_beneath(root: Path, parts: tuple[str, ...]) -> int:
    """A descriptor of a regular file. FileNotFoundError for anything else."""
    parent = _open_folders(root, parts[:-1])
    try:
        # not blocking: a fifo there must not hold the reader
        flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
        descriptor = os.open(parts[-1], flags, dir_fd=parent)
    except (OSError, IndexError) as error:
        raise FileNotFoundError(f"There is no file {'/'.join(parts)!r} in {root}.") from error
    finally:
        os.close(parent)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise FileNotFoundError(f"{'/'.join(parts)!r} in {root} is not a file.")
    return descriptor


def _open_folders(root: Path, parts: tuple[str, ...]) -> int:
    """A descriptor of the folder `root`/parts; it lies beneath `root` whatever is renamed meanwhile."""
    if any(part in ("", "/", ".", "..") for part in parts):
        raise FileNotFoundError(f"{'/'.join(parts)!r} is not inside {root}.")
    try:
        descriptor = os.open(root, _FOLDER)
    except OSError as error:
        raise FileNotFoundError(f"There is no folder {root}.") from error
    for part in parts:
        try:
            inner = os.open(part, _FOLDER, dir_fd=descriptor)
        except OSError as error:
            raise FileNotFoundError(f"There is no folder {'/'.join(parts)!r} in {root}.") from error
        finally:
            os.close(descriptor)
        descriptor = inner
    return descriptor
