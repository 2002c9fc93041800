"""Where checkpoints lie: in the run folder until they are uploaded, or in a folder all hosts share."""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any, Callable, Dict, Iterator, Optional, Union
from urllib.parse import quote

from trainmaster._info import ClusterInfo
from trainmaster.core._server import patiently

if TYPE_CHECKING:
    from trainmaster.http import ServerClient

Selector = Callable[[str], bool]

_CHUNK_BYTES = 1 << 20
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


class FolderStorage:
    """`shared_fs`, `directory` and checkpoints off the cluster: `<folder>/<uuid>/`, alike on every host."""

    shared = True

    def __init__(self, section: Dict[str, Any], folder: Path) -> None:
        self.section = section  # as the config has it: who deletes the checkpoint one day has to find it
        self._folder = folder

    def path(self, storage_id: str) -> Path:
        """The checkpoint's own folder, on this host."""
        return self._folder / storage_id

    def stored(self, storage_id: str, resources: Dict[str, int]) -> None:
        """The checkpoint is complete; its files say so themselves."""

    def fetch(self, storage_id: str, target: Path, selector: Optional[Selector]) -> None:
        """Copy the checkpoint's files to `target`. FileNotFoundError when there is no such checkpoint."""
        source = self._existing(storage_id)
        for relative in list_files(source, selector):
            copy_file(source / relative, target / relative)

    @contextlib.contextmanager
    def opened(self, storage_id: str, selector: Optional[Selector]) -> Iterator[Path]:
        """The checkpoint's files for reading; here the stored ones themselves."""
        yield self._existing(storage_id)

    def delete(self, storage_id: str) -> None:
        shutil.rmtree(self._existing(storage_id))

    def _existing(self, storage_id: str) -> Path:
        path = self.path(storage_id)
        if not path.is_dir():
            raise FileNotFoundError(f"There is no checkpoint {storage_id}: {path} does not exist.")
        return path


class ServerStorage:
    """Files are complete on this host first; the runner uploads them, and a restore downloads them."""

    section = {"type": "server"}
    shared = False

    def __init__(self, info: ClusterInfo) -> None:
        self._info = info
        self._stored: Dict[str, Dict[str, int]] = {}  # by this gang, perhaps not known to the server yet
        self._folder = Path(info._run_dir) / "checkpoints"

    def path(self, storage_id: str) -> Path:
        return self._folder / storage_id

    def stored(self, storage_id: str, resources: Dict[str, int]) -> None:
        """The checkpoint is complete on its hosts; the server hears of it in its own time."""
        self._stored[storage_id] = resources

    def listing(self, storage_id: str) -> Dict[str, Any]:
        """The server's record of a checkpoint that is uploaded. FileNotFoundError when it knows none."""
        return patiently(self._info, f"Checkpoint {storage_id}", lambda client: _listing(client, storage_id))

    def fetch(self, storage_id: str, target: Path, selector: Optional[Selector]) -> None:
        """Bring the checkpoint's files to `target`, from the server unless they still lie here."""
        resources = self._stored.get(storage_id) or self.listing(storage_id)["resources"]
        for relative in sorted(resources):
            if relative.endswith("/") or (selector is not None and not selector(relative)):
                continue
            self._fetch_file(storage_id, relative, int(resources[relative]), inside(target, relative))

    def _fetch_file(self, storage_id: str, relative: str, size: int, target: Path) -> None:
        here = inside(self.path(storage_id), relative)
        with contextlib.suppress(FileNotFoundError):  # never here, or uploaded and removed since
            if here.stat().st_size == size:
                copy_file(here, target)
                return
        target.parent.mkdir(parents=True, exist_ok=True)
        beside = target.with_name(f".{target.name}.coming")
        path = f"/runner/v1/checkpoints/{storage_id}/files/{quote(relative)}"
        patiently(
            self._info, f"Checkpoint {storage_id}", lambda client: _download(client, path, beside, size)
        )
        beside.replace(target)

    @contextlib.contextmanager
    def opened(self, storage_id: str, selector: Optional[Selector]) -> Iterator[Path]:
        """A folder of its own with the files, removed afterwards."""
        with tempfile.TemporaryDirectory(prefix="restore-", dir=self._info._run_dir) as folder:
            self.fetch(storage_id, Path(folder), selector)
            yield Path(folder)

    def delete(self, storage_id: str) -> None:
        raise RuntimeError(
            f"Checkpoint {storage_id} is kept by the server, which deletes by the experiment's own rules "
            "(save_trial_latest, save_trial_best, save_experiment_best); a trial cannot."
        )


Storage = Union[FolderStorage, ServerStorage]


def _listing(client: ServerClient, storage_id: str) -> Dict[str, Any]:
    from trainmaster.http import Answered, Unreachable

    try:
        record: Dict[str, Any] = client.get(f"/api/v1/checkpoints/{storage_id}").json()["checkpoint"]
    except Answered as error:
        if error.status == 404:
            raise FileNotFoundError(f"There is no checkpoint {storage_id} that this run may read.") from None
        raise
    # the dialect knows no PARTIAL: what is being uploaded is ACTIVE in it
    if str(record.get("state", "")).endswith(("ACTIVE", "PARTIAL")):
        raise Unreachable(f"{storage_id} is still being uploaded by the host that made it.")
    return record


def _download(client: ServerClient, path: str, target: Path, size: int) -> None:
    from trainmaster.http import Unreachable

    with client.stream("GET", path) as answer, target.open("wb") as file:
        shutil.copyfileobj(answer, file, _CHUNK_BYTES)
    if target.stat().st_size != size:
        raise Unreachable(f"{path} came with {target.stat().st_size} of {size} bytes.")


def inside(folder: Path, relative: str) -> Path:
    """`folder / relative`; ValueError when that would lie elsewhere."""
    parts = relative.split("/")
    if relative.startswith("/") or any(part in ("", ".", "..") for part in parts):
        raise ValueError(f"The checkpoint names a file {relative!r}, which does not lie in its folder.")
    return folder.joinpath(*parts)


def storage_for(info: Optional[ClusterInfo], wanted: Optional[Union[str, Dict[str, Any]]]) -> Storage:
    """The storage of the config, or the `wanted` one: a folder or a section. ValueError when it is wrong."""
    if isinstance(wanted, str):
        return _directory(Path(wanted).expanduser().resolve())
    section = wanted if wanted is not None else (info._checkpoint_storage if info else None)
    if not section:
        return ServerStorage(info) if info else _directory(_own_folder())
    kind = section.get("type")
    if kind == "server":
        return ServerStorage(info) if info else _directory(_own_folder())
    if kind == "directory":
        return _directory(Path(_text(section, "container_path")))
    if kind == "shared_fs":
        return FolderStorage(dict(section), _shared_folder(section))
    raise ValueError(
        f"checkpoint_storage.type is {kind!r}; this version knows server, shared_fs and directory."
    )


def _directory(folder: Path) -> FolderStorage:
    return FolderStorage({"type": "directory", "container_path": str(folder)}, folder)


def _shared_folder(section: Dict[str, Any]) -> Path:
    host_path = Path(_text(section, "host_path"))
    storage_path = section.get("storage_path")
    folder = host_path / storage_path if storage_path else host_path
    if not host_path.is_absolute() or host_path not in [folder, *folder.parents]:
        raise ValueError(
            f"checkpoint_storage: host_path {str(host_path)!r} must be absolute, "
            f"and storage_path {storage_path!r} below it."
        )
    return folder


def _text(section: Dict[str, Any], name: str) -> str:
    value = section.get(name)
    if not isinstance(value, str) or not value:
        raise ValueError(f"checkpoint_storage.{name} is {value!r}; {section.get('type')} needs a path there.")
    return value


def _own_folder() -> Path:
    data = os.environ.get("XDG_DATA_HOME")
    return (Path(data) if data else Path.home() / ".local" / "share") / "trainmaster" / "checkpoints"
