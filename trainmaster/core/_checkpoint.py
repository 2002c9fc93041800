"""`core_context.checkpoint`: store, restore, describe and delete checkpoints, sharded or not."""

from __future__ import annotations

import contextlib
import enum
import json
import logging
import os
import shutil
import threading
import time
import uuid
from pathlib import Path
from typing import Any, ContextManager, Dict, Iterable, Iterator, Optional, Tuple, Union

from trainmaster import dialect_log
from trainmaster._info import ClusterInfo
from trainmaster.core._distributed import DistributedContext
from trainmaster.core._records import Records, encode_strict
from trainmaster.core._shards import Agreement, Shard, agree, identity, settle
from trainmaster.core._storage import METADATA_FILE, Selector, Storage, copy_file, list_files

logger = logging.getLogger("trainmaster.core")

_NO_STEPS = 'The checkpoint\'s metadata must have "steps_completed", the number of batches trained so far.'

AnyPath = Union[str, "os.PathLike[str]"]


class DownloadMode(enum.Enum):
    """Whether the ranks of a host share a download, which then its local chief makes while they wait."""

    LocalWorkersShareDownload = "LOCAL_WORKERS_SHARE_DOWNLOAD"
    NoSharedDownload = "NO_SHARED_DOWNLOAD"


class CheckpointContext:
    """Checkpoints of this trial.

    Unsharded calls are the chief's alone (RuntimeError otherwise); with `shard=True` every rank must call.
    On the cluster the metadata must have `steps_completed` (ValueError); if sharded, that of one rank at
    least.
    """

    def __init__(
        self,
        info: Optional[ClusterInfo],
        distributed: DistributedContext,
        storage: Storage,
        records: Optional[Records],
    ) -> None:
        self._info = info
        self._distributed = distributed
        self._storage = storage
        self._records = records
        #: monotonic, of checkpoints that are being made while the training waits, by their ids
        self._began: Dict[str, float] = {}

    def upload(
        self,
        ckpt_dir: Optional[AnyPath],
        metadata: Optional[Dict[str, Any]] = None,
        *,
        shard: bool = False,
        selector: Optional[Selector] = None,
    ) -> str:
        """Store the files of `ckpt_dir` as a checkpoint and return its id.

        `selector(relative path)` picks files. Sharded: the files of all ranks are one checkpoint; equal
        files under one name are stored once, different ones are a RuntimeError, and so is metadata that
        disagrees; `ckpt_dir` may be None for a rank without files.
        """
        plain = self._checked(metadata, shard)
        if shard:
            return self._upload_sharded(ckpt_dir, plain, selector)
        self._require_chief("upload")
        if ckpt_dir is None:
            raise ValueError("ckpt_dir is None, which is only allowed for a rank of a sharded upload.")
        storage_id = str(uuid.uuid4())
        files = list_files(_folder(ckpt_dir), selector)
        with self._making(storage_id):
            self._copy(Path(ckpt_dir), files, storage_id)
        self._finish(storage_id, Agreement(resources=files, metadata=plain), shard)
        return storage_id

    @contextlib.contextmanager
    def store_path(
        self, metadata: Optional[Dict[str, Any]] = None, *, shard: bool = False
    ) -> Iterator[Tuple[Path, str]]:
        """Give (folder, id): what is in the folder at the end of the block becomes the checkpoint.

        Nothing is stored when the block raises. Sharded: the ranks of a host get the same folder.
        """
        plain = self._checked(metadata, shard)
        if not shard:
            self._require_chief("store_path")
        storage_id = str(uuid.uuid4())
        if shard:
            storage_id = self._distributed.broadcast(storage_id)
        with self._making(storage_id) as path:
            with self._saving(), self._storage.writing():
                path.mkdir(parents=True, exist_ok=True)
                yield path, storage_id
            agreement = (
                self._agree_on_stored(path, plain)
                if shard
                else Agreement(resources=list_files(path), metadata=plain)
            )
        self._finish(storage_id, agreement, shard)

    def download(
        self,
        storage_id: str,
        ckpt_dir: AnyPath,
        download_mode: DownloadMode = DownloadMode.LocalWorkersShareDownload,
        *,
        selector: Optional[Selector] = None,
    ) -> None:
        """Bring a checkpoint's files to `ckpt_dir`; when shared, all ranks of the host must call."""
        target = Path(ckpt_dir)
        if download_mode is DownloadMode.NoSharedDownload:
            target.mkdir(parents=True, exist_ok=True)
            self._storage.fetch(storage_id, target, selector)
            return
        problem: Optional[str] = None
        if self._distributed.local_rank == 0:
            try:
                target.mkdir(parents=True, exist_ok=True)
                self._storage.fetch(storage_id, target, selector)
            except Exception as error:
                self._distributed.broadcast_local(f"Checkpoint {storage_id} cannot be downloaded: {error}")
                raise
        problem = self._distributed.broadcast_local(problem)
        if problem:
            raise RuntimeError(problem)

    @contextlib.contextmanager
    def restore_path(
        self,
        storage_id: str,
        download_mode: DownloadMode = DownloadMode.LocalWorkersShareDownload,
        *,
        selector: Optional[Selector] = None,
    ) -> Iterator[Path]:
        """A folder with the checkpoint's files, for reading, until the end of the block.

        When shared, all ranks of the host must enter, and the block ends for all together.
        """
        if self._storage.shared or download_mode is DownloadMode.NoSharedDownload:
            with self._storage.opened(storage_id, selector) as path:
                yield path
            return
        with contextlib.ExitStack() as stack:
            opened: Optional[Path] = None
            if self._distributed.local_rank == 0:
                try:
                    opened = stack.enter_context(self._storage.opened(storage_id, selector))
                except Exception as error:
                    self._distributed.broadcast_local(f"Checkpoint {storage_id} cannot be restored: {error}")
                    raise
            path_or_problem = self._distributed.broadcast_local(opened)
            if isinstance(path_or_problem, str):
                raise RuntimeError(path_or_problem)
            try:
                yield path_or_problem
            finally:  # the others may still be reading
                self._distributed.gather_local(None)

    def get_metadata(self, storage_id: str) -> Dict[str, Any]:
        """The metadata that a checkpoint was stored with."""
        return self._storage.metadata(storage_id)

    def delete(self, storage_id: str) -> None:
        """Delete a checkpoint for good: its files here, and its record at the server, which removes what it keeps.

        The server refuses, with a line in the log, for one that is still being uploaded or that this trial would go
        on from.
        """
        self._storage.delete(storage_id)
        if self._records is None:
            dialect_log.core.info("deleted checkpoint %s", storage_id)
        else:
            self._records.append("checkpoint_deleted", uuid=storage_id)

    def _checked(self, metadata: Optional[Dict[str, Any]], shard: bool) -> Dict[str, Any]:
        plain: Dict[str, Any] = encode_strict(metadata or {}, "The checkpoint's metadata")
        if self._info is not None and not shard:
            steps = plain.get("steps_completed")
            if isinstance(steps, bool) or not isinstance(steps, int):
                raise ValueError(f"{_NO_STEPS} It is {steps!r}.")
        return plain

    def _require_chief(self, name: str) -> None:
        if self._distributed.rank != 0:
            raise RuntimeError(
                f"{name}() was called by rank {self._distributed.rank}: only the chief (rank 0) may store "
                "a checkpoint; with shard=True, all ranks must."
            )

    def _upload_sharded(
        self, ckpt_dir: Optional[AnyPath], metadata: Dict[str, Any], selector: Optional[Selector]
    ) -> str:
        storage_id: str = self._distributed.broadcast(str(uuid.uuid4()))
        folder: Optional[Path] = None
        shard = Shard(self._distributed.rank, None, {}, metadata)
        try:
            folder = _folder(ckpt_dir) if ckpt_dir is not None else None
            shard.folder = identity(self._distributed, folder)
            shard.files = list_files(folder, selector) if folder is not None else {}
        except (OSError, ValueError) as error:
            shard.problem = str(error)
        agreement = agree(self._distributed, shard, folder)
        problem: Optional[str] = None
        with self._making(storage_id):
            try:
                if folder is not None:
                    own = [name for name, rank in agreement.owners.items() if rank == self._distributed.rank]
                    self._copy(folder, own, storage_id)
            except OSError as error:
                problem = str(error)
            self._settle(agreement, problem)
        self._finish(storage_id, agreement, shard=True)
        return storage_id

    def _agree_on_stored(self, path: Path, metadata: Dict[str, Any]) -> Agreement:
        """The ranks wrote to the storage itself: in a shared one all see all files, else their host's."""
        self._distributed.allgather_local(None)  # all of this host have written
        shard = Shard(self._distributed.rank, identity(self._distributed, path), list_files(path), metadata)
        agreement = agree(self._distributed, shard, path, compare=not self._storage.shared)
        self._settle(agreement, None)
        return agreement

    def _settle(self, agreement: Agreement, problem: Optional[str]) -> None:
        if problem is None and self._info is not None and "steps_completed" not in agreement.metadata:
            problem = _NO_STEPS
        settle(self._distributed, problem)

    @contextlib.contextmanager
    def _making(self, storage_id: str) -> Iterator[Path]:
        """The checkpoint's folder, which is removed when the block raises."""
        path = self._storage.path(storage_id)
        if threading.current_thread() is threading.main_thread():  # a save in another thread holds nothing up
            self._began[storage_id] = time.monotonic()
        try:
            yield path
        except BaseException:
            self._began.pop(storage_id, None)
            shutil.rmtree(path, ignore_errors=True)
            raise

    def _copy(self, folder: Path, names: Iterable[str], storage_id: str) -> None:
        with self._saving(), self._storage.writing():
            for name in names:
                copy_file(folder / name, self._storage.path(storage_id) / name)

    def _saving(self) -> ContextManager[None]:
        return self._distributed._sign.doing("saves a checkpoint")

    def _finish(self, storage_id: str, agreement: Agreement, shard: bool) -> None:
        """Add metadata.json and say that the checkpoint is complete.

        In `server` storage every host that has files says so, for its own runner to upload them.
        """
        if self._distributed.rank == 0:
            agreement.resources[METADATA_FILE] = self._describe(storage_id, agreement.metadata)
        if shard:
            agreement = self._distributed.broadcast(agreement)
        if self._storage.carries:
            self._carry(storage_id, shard)
        self._storage.stored(storage_id, agreement.resources)
        here = self._storage.path(storage_id)
        elsewhere = self._distributed.local_rank == 0 and not self._storage.shared and here.is_dir()
        if self._distributed.rank == 0 or (elsewhere and list_files(here)):
            self._record(storage_id, agreement)
        self._began.pop(storage_id, None)

    def _carry(self, storage_id: str, shard: bool) -> None:
        """Bring the files of each host to where they are kept; an error, of all ranks, if one could not."""
        try:
            with self._saving():
                if self._distributed.local_rank == 0:
                    self._storage.carry(storage_id)
        except OSError as error:
            if shard:
                settle(self._distributed, str(error))
            raise
        if shard:
            settle(self._distributed, None)

    def _describe(self, storage_id: str, metadata: Dict[str, Any]) -> int:
        """Write metadata.json and return its size."""
        stored = self._storage.path(storage_id) / METADATA_FILE
        with self._storage.writing():
            stored.parent.mkdir(parents=True, exist_ok=True)
            if stored.exists():
                logger.warning(
                    "Checkpoint %s already has its own %s, which is kept.", storage_id, METADATA_FILE
                )
            else:
                stored.write_text(json.dumps(metadata, indent=2), encoding="utf-8")
            return stored.stat().st_size

    def _record(self, storage_id: str, agreement: Agreement) -> None:
        steps = agreement.metadata.get("steps_completed")
        began = self._began.get(storage_id)
        if self._records is None:
            folder = self._storage.path(storage_id)
            dialect_log.core.info("saved checkpoint %s — of step %s, in %s", storage_id, steps, folder)
            return
        self._records.append(
            "checkpoint",
            uuid=storage_id,
            steps_completed=steps,
            resources=agreement.resources,
            metadata=agreement.metadata,
            storage=self._storage.section,
            seconds=None if began is None else round(time.monotonic() - began, 3),
        )
        dialect_log.core.info("Reported checkpoint to master %s", storage_id)


def _folder(path: AnyPath) -> Path:
    folder = Path(path)
    if not folder.is_dir():
        raise ValueError(f"{folder} is not a folder, so it cannot be stored as a checkpoint.")
    return folder
