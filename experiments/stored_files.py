"""The stored files of checkpoints, whatever their storage, as far as the server itself can reach them.

It reaches its own store (`server`), `s3` with keys that it has (the config's or its own settings'), and folders
(`shared_fs`, `directory`) below the paths in `TRAINMASTER_MOUNTED`, which says that the server mounts them too.
For all others `NotHere` is raised, whose sentence says where the files are; dispatch.keeping.deletion deletes those
on a host that reaches them.

    listing(checkpoint) -> {path: bytes}          what lies there now
    open_file(checkpoint, path, offset=0)         a binary file for reading in pieces (shutil.copyfileobj)
    signed_url(checkpoint, path) -> str | None    an address that needs no login for a while; None: stream it yourself
    delete(checkpoint, paths=None)                remove these files, or all; what is gone already is fine

All of them block (disk or network): never inside a transaction, and in async code by `webui.waiting.threads.on_files`.
`checkpoint` needs its `trial.experiment` (select_related). Errors are OSErrors whose text is a sentence:
FileNotFoundError where there is no such file, ConnectionError where a storage does not answer, PermissionError where
the server may not ask it, NotHere.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import BinaryIO, Protocol

from experiments import s3_stores, stored_folders
from experiments.models import Checkpoint
from experiments.storage_errors import NotHere

__all__ = ["NotHere", "delete", "listing", "open_file", "signed_url"]


class Store(Protocol):
    """Where the files of one checkpoint lie."""

    def listing(self) -> dict[str, int]: ...

    def open_file(self, path: str, offset: int) -> BinaryIO: ...

    def signed_url(self, path: str) -> str | None: ...

    def delete(self, paths: Collection[str] | None) -> None: ...


def store_of(checkpoint: Checkpoint) -> Store:
    """Raises NotHere when the server cannot reach it."""
    kind = checkpoint.storage.get("type", "server")
    if kind == "server":
        return stored_folders.own(checkpoint)
    if kind == "s3":
        return s3_stores.store_of(checkpoint)
    if kind in ("shared_fs", "directory"):
        return stored_folders.mounted(checkpoint)
    raise NotHere(f"Checkpoint {checkpoint.pk} is in {kind} storage, which only hosts can reach.")


def listing(checkpoint: Checkpoint) -> dict[str, int]:
    """Relative path (with `/`) → size in bytes of every file that lies there now; empty when there is none."""
    return store_of(checkpoint).listing()


def open_file(checkpoint: Checkpoint, path: str, offset: int = 0) -> BinaryIO:
    """One file, from `offset` on, for reading in pieces. The caller closes it."""
    return store_of(checkpoint).open_file(path, offset)


def signed_url(checkpoint: Checkpoint, path: str) -> str | None:
    """An address that anybody can download the file from for `s3_stores.DOWNLOAD_SECONDS`; None if there is none."""
    return store_of(checkpoint).signed_url(path)


def delete(checkpoint: Checkpoint, paths: Collection[str] | None = None) -> None:
    """Remove the files at `paths` (of `resources`), or all of them. What is not there is not an error."""
    store_of(checkpoint).delete(paths)
