"""Brings the files that TensorBoard shows from the server to a folder of the host, again and again while it runs.

Files that only grow are asked for from where they end here, so nothing is sent twice.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Any, Dict, List, Mapping

from trainmaster.http import HttpError, Refused
from trainmaster.paths import RunPaths
from trainmaster.protocol import Spec
from trainmaster.runner.link import OVER, Link, Weather, expect_object

_ROUND_SECONDS = 5.0


class Files:
    """The files of this task's experiments, kept alike in `folder`."""

    def __init__(self, paths: RunPaths, spec: Spec, folder: Path) -> None:
        self.folder = folder
        self._link = Link(paths, spec, Weather())
        self._known: Dict[str, _Known] = {}
        folder.mkdir(mode=0o700, exist_ok=True)

    def follow(self) -> None:
        """Bring what is new every few seconds, until the server says that this run is over."""
        told = ""
        while True:
            try:
                self.round()
                told = ""
            except (HttpError, OSError) as error:
                if isinstance(error, Refused) and error.status == OVER:
                    return
                if str(error) != told:
                    told = str(error)
                    print(
                        f"WARNING: trainmaster: TensorBoard files could not be fetched: {error}",
                        file=sys.stderr,
                    )
            time.sleep(_ROUND_SECONDS)

    def round(self) -> None:
        """Look once at everything."""
        reply = self._link.request("GET", "/runner/v1/tensorboard")
        for entry in expect_object(reply)["files"]:
            self._bring(entry)

    def _bring(self, entry: Mapping[str, Any]) -> None:
        """One file: {"path", "version"}; what comes is appended, unless the server says that it begins anew."""
        path, version = str(entry["path"]), str(entry["version"])
        known = self._known.setdefault(path, _Known())
        while known.version != version:
            target = self.folder.joinpath(*_safe(known.name(path)))
            size = target.stat().st_size if target.exists() else 0
            query = {"path": path, "offset": str(size), "after": known.upto}
            reply = self._link.request("GET", "/runner/v1/tensorboard/file", query=query)
            said = {name.lower(): value for name, value in reply.headers.items()}
            if said.get("x-trainmaster-anew") == "true" and size:
                # TensorBoard reads on where it stands in a file: what begins anew is another file beside it
                known.times += 1
                target.unlink()
                target = self.folder.joinpath(*_safe(known.name(path)))
            target.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            with target.open("ab") as file:
                file.write(reply.body)
            known.upto = said.get("x-trainmaster-upto", "")
            if said.get("x-trainmaster-more") != "true":
                known.version = version


class _Known:
    """How far a file has come."""

    def __init__(self) -> None:
        self.version, self.upto, self.times = "", "", 0

    def name(self, path: str) -> str:
        """Where it lies now; the ending changes each time that it begins anew."""
        return f"{path}.{self.times}" if self.times else path


def _safe(path: str) -> List[str]:
    parts = path.split("/")
    if any(part in ("", ".", "..") for part in parts):
        raise OSError(f"the server listed a file {path!r}, which would be outside the folder")
    return parts
