"""Which storage a task uses: the config's, or the one that training code asks for."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, Dict, Optional, Union

from trainmaster._info import ClusterInfo
from trainmaster.core._server_storage import ServerStorage
from trainmaster.core._storage import FolderStorage, Storage
from trainmaster.paths import RunPaths

_KINDS = "server, shared_fs, directory, s3, gcs and azure"


def storage_for(info: Optional[ClusterInfo], wanted: Optional[Union[str, Dict[str, Any]]]) -> Storage:
    """The storage of the config, or the `wanted` one: a folder or a section.

    ValueError when it is wrong, StorageFault when a package that it needs is not installed.
    """
    if isinstance(wanted, str):
        return _directory(info, Path(wanted).expanduser().resolve())
    section = wanted if wanted is not None else (info._checkpoint_storage if info else None)
    kind = section.get("type") if section else "server"
    if not section or kind == "server":
        return ServerStorage(info) if info else _directory(None, own_folder("checkpoints"))
    if kind == "directory":
        return _directory(info, Path(_text(section, "container_path")))
    if kind == "shared_fs":
        return FolderStorage(dict(section), _shared_folder(section), _host(info))
    if kind == "s3" and section.get("signed") is True and info is not None:
        return ServerStorage(info, dict(section))
    if kind in ("s3", "gcs", "azure"):
        from trainmaster.core._object_storage import object_storage

        _text(section, "container" if kind == "azure" else "bucket")
        folder = Path(info._run_dir) / "checkpoints" if info else own_folder("checkpoints") / "leaving"
        return object_storage(dict(section), folder, _host(info))
    raise ValueError(f"checkpoint_storage.type is {kind!r}; allowed: {_KINDS}.")


def require_shared(info: Optional[ClusterInfo], size: int) -> None:
    """StorageFault on a host whose `shared_fs` is not that of the gang's first host; the gang has met."""
    if info is not None and size > 1 and info.container_rank > 0:
        from trainmaster.runner.storage_check import require_mark

        require_mark(RunPaths(Path(info._run_dir)), info.agent_id, info.container_addrs[0])


def _host(info: Optional[ClusterInfo]) -> str:
    return info.agent_id if info else os.uname().nodename


def _directory(info: Optional[ClusterInfo], folder: Path) -> FolderStorage:
    return FolderStorage({"type": "directory", "container_path": str(folder)}, folder, _host(info))


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
        raise ValueError(f"checkpoint_storage.{name} is {value!r}; it is required for {section.get('type')}.")
    return value


def own_folder(name: str) -> Path:
    """A folder of this user, for what belongs to no run of a host."""
    data = os.environ.get("XDG_DATA_HOME")
    return (Path(data) if data else Path.home() / ".local" / "share") / "trainmaster" / name
