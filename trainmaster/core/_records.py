"""The road of everything training code reports: one JSON line per record in the rank's own spool file.

No network and no thread: the server may be away for hours, and nothing here can slow or end a training run.
"""

from __future__ import annotations

import logging
import os
import time
from pathlib import Path
from typing import Any, Dict, Optional

from trainmaster import quantities
from trainmaster.core._encoding import to_line

logger = logging.getLogger("trainmaster.core")

#: of one record; checkpoints of very many files are the largest
RECORD_BYTES = 16 * 1024 * 1024


class Records:
    """Appends this rank's records to `spool/core.rank<N>.jsonl` of the run folder."""

    def __init__(self, run_dir: str, rank: int) -> None:
        self.path = Path(run_dir, "spool", f"core.rank{rank}.jsonl")
        self._descriptor: Optional[int] = None
        self._torn = False
        self._lost = 0  # since the file could be written the last time

    def append(self, type_: str, **fields: Any) -> None:
        """Append one record with a single write. A full disk costs the record, never the training."""
        record: Dict[str, Any] = {"type": type_, **fields}
        if type_ in ("metrics", "checkpoint"):
            record["t"] = time.time()
        line = to_line(record)
        if len(line) > RECORD_BYTES:
            logger.error(
                "A %s record of %s is dropped: the server accepts at most %s per record.",
                type_, quantities.size(len(line)), quantities.size(RECORD_BYTES),
            )  # fmt: skip
            return
        if self._torn:  # the line that a full disk cut ends here, so that it spoils no other
            line = b"\n" + line
        try:
            if self._descriptor is None:
                self.path.parent.mkdir(mode=0o700, exist_ok=True)
                flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC
                self._descriptor = os.open(self.path, flags, 0o600)
            written = os.write(self._descriptor, line)
        except OSError as error:
            self._lose(type_, f"cannot be written ({error.strerror})")
            return
        self._torn = written < len(line)
        if self._torn:
            self._lose(type_, "was written only in part; is the disk full?")
        elif self._lost:
            self._say_lost("Writing works again.")

    def _lose(self, type_: str, why: str) -> None:
        """Say so once; a training that reports every few milliseconds must not fill its log with it."""
        if not self._lost:
            logger.warning(
                "A %s record was lost: %s %s. Further lost records are only counted.", type_, self.path, why
            )
        self._lost += 1

    def _say_lost(self, more: str = "") -> None:
        logger.warning("%d of this rank's records were lost. %s", self._lost, more)
        self._lost = 0

    def close(self) -> None:
        if self._lost:
            self._say_lost()
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None
