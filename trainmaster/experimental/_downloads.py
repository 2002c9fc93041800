"""A checkpoint's files, out of its storage or through the server, whole or not at all."""

from __future__ import annotations

import shutil
import tarfile
import tempfile
from pathlib import Path
from typing import Any, Dict, Iterator, List, Mapping, Optional, Tuple
from urllib.parse import quote

from trainmaster.common.api import errors
from trainmaster.experimental._session import Pieces, Session
from trainmaster.experimental._vocabulary import DownloadMode

_BLOCK_BYTES = 1 << 20


def fetch(
    session: Session,
    uuid: str,
    storage: Mapping[str, Any],
    resources: Mapping[str, int],
    target: Path,
    mode: DownloadMode,
) -> None:
    """Bring the files that `resources` (path -> bytes) names into the folder `target`.

    They arrive in a folder beside it, are compared with the record, and are moved in then. FileNotFoundError when
    DIRECT finds nothing on this machine; NotFoundException and RuntimeError when the server has not all of it.
    """
    if mode is DownloadMode.AUTO:
        mode = DownloadMode.MASTER if _here(storage, uuid) is None else DownloadMode.DIRECT
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=f".{target.name}.", dir=target.parent) as name:
        coming = Path(name)
        if mode is DownloadMode.DIRECT:
            _copy(_folder(storage, uuid), coming)
        else:
            _unpack(session, uuid, coming)
        _compare(uuid, resources, coming)
        _move_in(coming, target)


def _here(storage: Mapping[str, Any], uuid: str) -> Optional[Path]:
    """The checkpoint's folder where its storage is one of this machine's, too."""
    kind = storage.get("type")
    if kind == "shared_fs":
        folder = Path(str(storage.get("host_path")), str(storage.get("storage_path") or ""), uuid)
    elif kind == "directory":
        folder = Path(str(storage.get("container_path")), uuid)
    else:
        return None
    return folder if folder.is_dir() else None


def _folder(storage: Mapping[str, Any], uuid: str) -> Path:
    kind = storage.get("type", "server")
    if kind not in ("shared_fs", "directory"):
        raise errors.BadRequestException(
            f"Checkpoint {uuid} is in {kind} storage, which this client can only read through the server: "
            "use DownloadMode.MASTER or AUTO."
        )
    found = _here(storage, uuid)
    if found is None:
        where = storage.get("host_path") or storage.get("container_path")
        raise FileNotFoundError(
            f"Checkpoint {uuid} is not in {where} on this machine; "
            "mount that storage here, or use DownloadMode.MASTER."
        )
    return found


def _copy(source: Path, target: Path) -> None:
    for path, there in _places(sorted(source.rglob("*")), source, target):
        shutil.copyfile(path, there)


def _unpack(session: Session, uuid: str, target: Path) -> None:
    """Out of the gzipped tar that the server sends; it is read as it comes."""
    pieces = session.pieces(f"/checkpoints/{quote(uuid, safe='')}", {"Accept": "application/gzip"})
    try:
        with tarfile.open(fileobj=Pieces(pieces), mode="r|gz") as tar:
            for member, path in _members(uuid, tar, target):
                if member.isdir():
                    path.mkdir(parents=True, exist_ok=True)
                    continue
                content = tar.extractfile(member)
                path.parent.mkdir(parents=True, exist_ok=True)
                with path.open("wb") as file:
                    shutil.copyfileobj(content or Pieces(iter(())), file, _BLOCK_BYTES)
    except (tarfile.TarError, EOFError) as error:
        raise errors.APIException(f"The download of checkpoint {uuid} was interrupted: {error}.") from error


def _members(uuid: str, tar: tarfile.TarFile, target: Path) -> Iterator[Tuple[tarfile.TarInfo, Path]]:
    for member in tar:
        parts = [part for part in member.name.split("/") if part not in ("", ".")]
        if ".." in parts or member.name.startswith("/") or not (member.isdir() or member.isfile()):
            raise errors.APIException(
                f"The archive of checkpoint {uuid} has {member.name!r}, which is not a file inside it; "
                "the archive is rejected."
            )
        yield member, target.joinpath(*parts)


def _compare(uuid: str, resources: Mapping[str, int], folder: Path) -> None:
    sizes: Dict[str, int] = {
        path.relative_to(folder).as_posix(): path.stat().st_size
        for path in folder.rglob("*")
        if path.is_file()
    }
    wrong = [
        path for path, size in sorted(resources.items()) if not path.endswith("/") and sizes.get(path) != size
    ]
    if wrong:
        raise RuntimeError(
            f"The download of checkpoint {uuid} lacks "
            f"{wrong[0]!r}{f' and {len(wrong) - 1} more files' if wrong[1:] else ''}, or its size is wrong."
        )


def _move_in(coming: Path, target: Path) -> None:
    """`metadata.json` last: where it is, all is."""
    files = sorted(coming.rglob("*"), key=lambda path: (path.name == "metadata.json", path))
    target.mkdir(parents=True, exist_ok=True)
    for path, there in _places(files, coming, target):
        path.replace(there)


def _places(paths: List[Path], source: Path, target: Path) -> Iterator[Tuple[Path, Path]]:
    """Each file and its place below `target`; the folders are made there."""
    for path in paths:
        there = target / path.relative_to(source)
        folder = there if path.is_dir() else there.parent
        folder.mkdir(parents=True, exist_ok=True)
        if folder is not there:
            yield path, there
