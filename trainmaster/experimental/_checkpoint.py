"""Checkpoints, as scripts hold them, and their files: out of the storage or through the server, whole or not at all."""

from __future__ import annotations

import dataclasses
import json
import logging
import shutil
import tarfile
import tempfile
from pathlib import Path
from typing import Any, Dict, Iterable, Iterator, List, Mapping, Optional, Tuple
from urllib.parse import quote

from trainmaster.common.api import errors
from trainmaster.errors import CheckpointStateException
from trainmaster.experimental._metrics import TrialMetrics, report_of
from trainmaster.experimental._resource import Resource
from trainmaster.experimental._session import Json, Pieces, Session
from trainmaster.experimental._vocabulary import CheckpointState, DownloadMode

logger = logging.getLogger("trainmaster.client")

#: files that say that a folder holds a checkpoint already
_SIGNS = ("metadata.json", "MLmodel")
_BLOCK_BYTES = 1 << 20


@dataclasses.dataclass
class CheckpointTrainingMetadata:
    """Where a checkpoint comes from; `validation_metrics` is {"avgMetrics": {...}}, or empty."""

    experiment_config: Dict[str, Any]
    experiment_id: int
    trial_id: int
    hparams: Dict[str, Any]
    validation_metrics: Dict[str, Any]


@dataclasses.dataclass(init=False, repr=False, eq=False)
class Checkpoint(Resource):
    """One checkpoint. What it says of itself is of its last `reload`."""

    _NOUN, _ARGUMENT, _KEY = "checkpoint", "uuid", "uuid"

    task_id: Optional[str] = None
    allocation_id: Optional[str] = None
    report_time: Optional[str] = None
    resources: Optional[Dict[str, str]] = None  # path -> bytes; a text, as in the dialect
    metadata: Optional[Dict[str, Any]] = None
    state: Optional[CheckpointState] = None
    storage: Optional[str] = None
    training: Optional[CheckpointTrainingMetadata] = None

    def __init__(self, session: Session, uuid: str) -> None:
        super().__init__(session, uuid)
        self.uuid = uuid

    def download(self, path: Optional[str] = None, mode: DownloadMode = DownloadMode.AUTO) -> str:
        """Bring the files to `path` (default: checkpoints/<uuid>) and return it. A folder that has them is left alone.

        Raises CheckpointStateException when the files are not all there, or deleted, and what the storage raises.
        """
        if self.state is None:
            raise ValueError("The checkpoint's state is not known yet; call reload() first.")
        if self.state not in (CheckpointState.COMPLETED, CheckpointState.PARTIALLY_DELETED):
            raise CheckpointStateException(
                f"Checkpoint {self.uuid} is in {self.state.value}; only checkpoints in STATE_COMPLETED or "
                "STATE_PARTIALLY_DELETED can be downloaded."
            )
        target = Path(path) if path is not None else Path("checkpoints", self.uuid)
        if not any((target / name).exists() for name in _SIGNS):
            storage = (self.training.experiment_config if self.training else {}).get(
                "checkpoint_storage"
            ) or {}
            sizes = {path: int(size) for path, size in (self.resources or {}).items()}
            _fetch(self._session, self.uuid, storage, sizes, target, DownloadMode(mode))
        if not (target / "metadata.json").exists():
            self.write_metadata_file(str(target / "metadata.json"))
        return str(target)

    def write_metadata_file(self, path: str) -> None:
        """Write the metadata as JSON to the file `path`."""
        Path(path).write_text(json.dumps(self.metadata, indent=2), encoding="utf-8")

    def add_metadata(self, metadata: Dict[str, Any]) -> None:
        """Add to the metadata, on the server; a key that is there is replaced. Files in the storage do not change."""
        self._set_metadata({**(self.metadata or {}), **metadata})

    def remove_metadata(self, keys: List[str]) -> None:
        """Take keys off the metadata, on the server; those that are not there are no error."""
        self._set_metadata({key: value for key, value in (self.metadata or {}).items() if key not in keys})

    def delete(self) -> None:
        """Have the server delete the checkpoint and its files, in its own time."""
        self._session.call("DELETE", "/api/v1/checkpoints", {"checkpointUuids": [self.uuid]})
        logger.info("Checkpoint %s is being deleted.", self.uuid)

    def remove_files(self, globs: List[str]) -> None:
        """Have the server delete the files that match any of these patterns, in its own time."""
        body = {"checkpointUuids": [self.uuid], "checkpointGlobs": globs}
        self._session.post("/api/v1/checkpoints/rm", body)

    def get_metrics(self, group: Optional[str] = None) -> Iterable[TrialMetrics]:
        """What trials reported that use this checkpoint, as they say by `core_context.experimental`.

        The metrics of the trial that made it come from Trial.iter_metrics(group).
        """
        query = [("metricGroup", group)] if group else []
        found = self._session.get(f"{self._path}/metrics", query)["metrics"]
        return [report_of(report, TrialMetrics) for report in found]

    def _set_metadata(self, metadata: Dict[str, Any]) -> None:
        body = {"checkpoint": {"uuid": self.uuid, "metadata": metadata, "resources": {}, "training": {}}}
        self._session.post(f"{self._path}/metadata", body)
        self.metadata = metadata

    def _hydrate(self, record: Json) -> None:
        super()._hydrate(record)
        self.state = CheckpointState(record["state"])
        self.training = _training(record["training"])

    def __repr__(self) -> str:
        trial = f", trial_id={self.training.trial_id}" if self.training else ""
        return f"Checkpoint(uuid={self.uuid}, task_id={self.task_id}{trial})"


def _training(record: Json) -> Optional[CheckpointTrainingMetadata]:
    if not record.get("trialId"):
        return None
    return CheckpointTrainingMetadata(
        experiment_config=record["experimentConfig"],
        experiment_id=record["experimentId"],
        trial_id=record["trialId"],
        hparams=record.get("hparams") or {},
        validation_metrics=record.get("validationMetrics") or {},
    )


def _fetch(
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
