"""Where checkpoints lie, as training code sees it; here the kinds that are folders, alike on every host."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import tempfile
from pathlib import Path
from typing import Any, Callable, Dict, Iterator, Optional

from trainmaster.storage_faults import OF_DISKS, folder_fault

Selector = Callable[[str], bool]

METADATA_FILE = "metadata.json"


def list_files(folder: Path, selector: Optional[Selector] = None) -> Dict[str, int]:
    """Relative path (with `/`) → size in bytes of every file below `folder`, links followed."""
    found: Dict[str, int] = {}
    for root, folders, files in os.walk(folder, followlinks=True):
        folders.sort()
        for name in files:
            path = Path(root, name)
            relative = path.relative_to(folder).as_posix()
            if selector is None or selector(relative):
                found[relative] = path.stat().st_size
    return found


def copy_file(source: Path, target: Path) -> None:
    """Copy so that `target` is whole or not there."""
    target.parent.mkdir(parents=True, exist_ok=True)
    beside = target.with_name(f".{target.name}.copying")
    shutil.copyfile(source, beside)
    beside.replace(target)


def inside(folder: Path, relative: str) -> Path:
    """`folder / relative`; ValueError when that would lie elsewhere."""
    parts = relative.split("/")
    if relative.startswith("/") or any(part in ("", ".", "..") for part in parts):
        raise ValueError(f"The checkpoint names a file {relative!r}, which is not inside its folder.")
    return folder.joinpath(*parts)


def read_metadata(folder: Path, storage_id: str) -> Dict[str, Any]:
    """The metadata.json of a checkpoint whose files lie in `folder`. FileNotFoundError without one."""
    stored = folder / METADATA_FILE
    if not stored.is_file():
        raise FileNotFoundError(
            f"There is no checkpoint {storage_id} with metadata: {stored} does not exist."
        )
    loaded: Dict[str, Any] = json.loads(stored.read_text(encoding="utf-8"))
    return loaded


class Storage:
    """One kind of storage. Files of a checkpoint are made in `path` first; errors of storing are StorageFaults.

    `section` is what the record says of it, without secrets: who deletes the checkpoint one day has to find it.
    `shared`: what one host puts into `path` is there for all. `carries`: files leave `path` by `carry`.
    """

    shared = False
    carries = False

    def __init__(self, section: Dict[str, Any], folder: Path, host: str) -> None:
        self.section = section
        self._folder = folder
        self._host = host

    def path(self, storage_id: str) -> Path:
        """The checkpoint's own folder, on this host."""
        return self._folder / storage_id

    @contextlib.contextmanager
    def writing(self) -> Iterator[None]:
        """Around all that writes below `path`: an OSError of this folder becomes one that names the storage."""
        try:
            yield
        except OSError as error:
            file = str(error.filename or "")
            is_ours = file.startswith(str(self._folder)) if file else error.errno in OF_DISKS
            if not is_ours:  # the training code's own trouble
                raise
            raise folder_fault(str(self._folder), self._host, error) from error

    def carry(self, storage_id: str) -> None:
        """Bring what lies in `path` to where it is kept; the local chief of each host calls."""

    def stored(self, storage_id: str, resources: Dict[str, int]) -> None:
        """The checkpoint is complete, on all its hosts."""

    def fetch(self, storage_id: str, target: Path, selector: Optional[Selector]) -> None:
        """Bring the checkpoint's files to `target`. FileNotFoundError when there is no such checkpoint."""
        raise NotImplementedError

    @contextlib.contextmanager
    def opened(self, storage_id: str, selector: Optional[Selector]) -> Iterator[Path]:
        """A folder with the checkpoint's files, for reading; here one of its own, removed afterwards."""
        self._folder.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix="restore-", dir=self._folder.parent) as folder:
            self.fetch(storage_id, Path(folder), selector)
            yield Path(folder)

    def metadata(self, storage_id: str) -> Dict[str, Any]:
        """What it was stored with. FileNotFoundError when there is no such checkpoint."""
        raise NotImplementedError

    def delete(self, storage_id: str) -> None:
        raise NotImplementedError

    def check(self, name: str) -> None:
        """Write, read and delete a small file called `name`. StorageFault."""


class FolderStorage(Storage):
    """`shared_fs`, `directory` and checkpoints off the cluster: `<folder>/<uuid>/`."""

    shared = True

    def fetch(self, storage_id: str, target: Path, selector: Optional[Selector]) -> None:
        source = self._existing(storage_id)
        for relative in list_files(source, selector):
            copy_file(source / relative, target / relative)

    @contextlib.contextmanager
    def opened(self, storage_id: str, selector: Optional[Selector]) -> Iterator[Path]:
        """Here the stored files themselves."""
        yield self._existing(storage_id)

    def metadata(self, storage_id: str) -> Dict[str, Any]:
        return read_metadata(self.path(storage_id), storage_id)

    def delete(self, storage_id: str) -> None:
        shutil.rmtree(self._existing(storage_id))

    def _existing(self, storage_id: str) -> Path:
        path = self.path(storage_id)
        if not path.is_dir():
            raise FileNotFoundError(f"There is no checkpoint {storage_id}: {path} does not exist.")
        return path
