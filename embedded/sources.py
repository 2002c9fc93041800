"""The files that `up --dev` watches for changes."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

SUFFIXES = (".py", ".html")
#: No server loads these, or they are not sources.
SKIPPED = frozenset({"benchmarks", "build", "data", "dist", "docs", "examples", "tests", "__pycache__"})


class Sources:
    """Every file below a folder that a server's process loads once and keeps: Python code and templates."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._seen = self._times()

    def changed(self) -> list[Path]:
        """The files that were changed, added or removed since the last call, relative to the folder."""
        former, self._seen = self._seen, self._times()
        return sorted({path.relative_to(self._root) for path, _ in former.items() ^ self._seen.items()})

    def _times(self) -> dict[Path, int]:
        found = {}
        for folder, below, names in os.walk(self._root):
            below[:] = [name for name in below if name not in SKIPPED and not name.startswith(".")]
            for path in (Path(folder, name) for name in names if name.endswith(SUFFIXES)):
                with contextlib.suppress(FileNotFoundError):  # editors replace files by renaming
                    found[path] = path.stat().st_mtime_ns
        return found
