"""Notices that the disk of a run is full, and says so in the run's log once there is room for a word.

Whatever wrote meanwhile, ranks too, was refused by the system: their lines are lost before anybody can read them.
"""

from __future__ import annotations

import errno
import os
import time
from pathlib import Path
from typing import Optional

_ROOM_BYTES = 64 * 1024
FULL = (errno.ENOSPC, errno.EDQUOT)


class FullDisk:
    """`where` is `<host>:<mount point>` while the disk with `folder` is full, else None."""

    def __init__(self, folder: Path, host: str) -> None:
        self._folder = folder
        self._host = host
        self._since = 0.0  # monotonic
        self._refused = False  # a write was: a quota, which the free space does not show
        self.where: Optional[str] = None

    def refused(self, error: OSError) -> None:
        """A write of ours failed."""
        if error.errno in FULL:
            self._refused = True
            self._begin()

    def wrote(self) -> None:
        """A write of ours succeeded."""
        self._refused = False

    def look(self, at_the_end: bool = False) -> Optional[str]:
        """The sentence for the log when it is over, or the run is; to be asked once a second."""
        disk = os.statvfs(self._folder)
        if disk.f_bavail * disk.f_frsize < _ROOM_BYTES < disk.f_blocks * disk.f_frsize:
            self._begin()
        elif not self._refused:
            at_the_end = True
        if self.where is None or not at_the_end:
            return None
        where, self.where = self.where, None
        seconds = time.monotonic() - self._since
        return (
            f"trainmaster: the disk was full at {where} for {seconds:.0f} s. Output from that time is lost; "
            "free some space there, or move the workdir to a larger disk."
        )

    def _begin(self) -> None:
        if self.where is None:
            self.where = place_of(self._folder, self._host)
            self._since = time.monotonic()


def place_of(folder: Path, host: str) -> str:
    """`<host>:<mount point>` of the disk with `folder`."""
    folder = folder.resolve()
    while not os.path.ismount(folder):
        folder = folder.parent
    return f"{host}:{folder}"
