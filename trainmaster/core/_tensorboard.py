"""Files that training code writes for TensorBoard, brought beside the checkpoints while it goes on."""

from __future__ import annotations

import logging
import threading
from pathlib import Path
from typing import Callable, Dict, Optional, Tuple

from trainmaster import event_files
from trainmaster._info import ClusterInfo
from trainmaster.core._distributed import DistributedContext
from trainmaster.core._storage import FolderStorage, Storage, copy_file, list_files
from trainmaster.core._tensorboard_mode import TensorboardMode

logger = logging.getLogger("trainmaster.core")

EVERY_SECONDS = 30.0
CLOSE_LIMIT_SECONDS = 30.0

Selects = Callable[[Path], bool]
Mangles = Callable[[Path, int], Path]


class TensorboardFiles:
    """This rank's folder for such files, and where they are copied from there.

    In `shared_fs` and `directory` storage they lie in `tensorboard/experiment/<id>/trial/<id>/`, those of ranks other
    than 0 named by their rank. With any other storage the runner brings them to the server (runner/event_files.py):
    in AUTO mode out of the folder itself, in MANUAL mode those that were chosen. Off the cluster they stay where they
    were written. In AUTO mode nothing that fails here ends or holds up the training: it is logged once.
    """

    def __init__(
        self,
        info: Optional[ClusterInfo],
        distributed: DistributedContext,
        storage: Storage,
        mode: TensorboardMode = TensorboardMode.AUTO,
    ) -> None:
        self._rank = distributed.rank
        self._mode = mode
        self._target = _target(info, storage, mode)
        self._folder = folder_of(info, self._rank)
        self._copied: Dict[str, Tuple[int, int]] = {}  # relative path → size and time of change
        self._closing = threading.Event()
        self._thread: Optional[threading.Thread] = None
        self._is_told = False

    def path(self) -> Path:
        """The folder, made if it is not there; in AUTO mode its files are copied from now on."""
        self._folder.mkdir(parents=True, exist_ok=True)
        self._start()
        return self._folder

    def upload(self, selector: Optional[Selects], mangler: Optional[Mangles]) -> None:
        """Copy new and changed files now. RuntimeError in AUTO mode; OSError when they cannot be copied."""
        if self._mode is TensorboardMode.AUTO:
            raise RuntimeError(
                "upload_tensorboard_files() needs core.init(tensorboard_mode=core.TensorboardMode.MANUAL); "
                "in AUTO mode the files are copied automatically."
            )
        self._copy(selector or (lambda path: True), mangler or (lambda path, rank: path))

    def close(self) -> None:
        """Copy what is left, for CLOSE_LIMIT_SECONDS at most."""
        if self._mode is TensorboardMode.AUTO and self._folder.is_dir():
            self._start()
        self._closing.set()
        if self._thread is not None:
            self._thread.join(CLOSE_LIMIT_SECONDS)
            if self._thread.is_alive():
                logger.warning("TensorBoard files were left in %s: their storage is too slow.", self._folder)

    def _start(self) -> None:
        if self._mode is TensorboardMode.AUTO and self._target is not None and self._thread is None:
            self._thread = threading.Thread(target=self._run, name="tensorboard files", daemon=True)
            self._thread.start()

    def _run(self) -> None:
        is_last = False
        while not is_last:
            is_last = self._closing.wait(EVERY_SECONDS)
            try:
                self._copy(lambda path: event_files.is_event_file(path.name), event_files.named_by_rank)
            except Exception as error:
                if not self._is_told:
                    logger.warning("TensorBoard files cannot be copied to %s: %s", self._target, error)
                self._is_told = True

    def _copy(self, selector: Selects, mangler: Mangles) -> None:
        if self._target is None or not self._folder.is_dir():
            return
        for relative in list_files(self._folder, lambda name: selector(Path(name))):
            source = self._folder / relative
            status = source.stat()
            stamp = status.st_size, status.st_mtime_ns
            if self._copied.get(relative) != stamp:
                copy_file(source, self._target / mangler(Path(relative), self._rank))
                self._copied[relative] = stamp


def folder_of(info: Optional[ClusterInfo], rank: int) -> Path:
    """Where a rank writes; it may not be there yet."""
    return event_files.folder(info._run_dir if info else "", rank)


def _target(info: Optional[ClusterInfo], storage: Storage, mode: TensorboardMode) -> Optional[Path]:
    if info is None or info._trial is None:
        return None
    if not isinstance(storage, FolderStorage):
        if mode is TensorboardMode.AUTO:
            return None
        Path(info._run_dir, event_files.MANUAL_MARK).touch()
        return Path(info._run_dir, event_files.CHOSEN)
    trial = info._trial
    names = "experiment", str(trial.experiment_id), "trial", str(trial.trial_id)
    return storage.path("tensorboard").joinpath(*names)
