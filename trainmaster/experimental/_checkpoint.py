"""Checkpoints, as scripts hold them."""

from __future__ import annotations

import dataclasses
import json
import logging
from pathlib import Path
from typing import Any, Dict, Iterable, List, Optional

from trainmaster.errors import CheckpointStateException
from trainmaster.experimental import _downloads
from trainmaster.experimental._metrics import TrialMetrics, report_of
from trainmaster.experimental._resource import Resource
from trainmaster.experimental._session import Json, Session
from trainmaster.experimental._vocabulary import CheckpointState, DownloadMode

logger = logging.getLogger("trainmaster.client")

#: files that say that a folder holds a checkpoint already
_SIGNS = ("metadata.json", "MLmodel")


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
            _downloads.fetch(self._session, self.uuid, storage, sizes, target, DownloadMode(mode))
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
