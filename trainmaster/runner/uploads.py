"""Uploads checkpoints in `server` storage in the background; they survive restarts and may outlive the ranks."""

from __future__ import annotations

import json
import shutil
import threading
import time
from pathlib import Path, PurePosixPath
from typing import Any, Dict, List, Optional, TypedDict, cast
from urllib.parse import quote

from trainmaster.http import Answered, Conflict, HttpError, Later, Refused
from trainmaster.jsonfile import read_json, write_json
from trainmaster.paths import RunPaths
from trainmaster.runner.link import Backoff, Link, Weather
from trainmaster.runner.shipping import say

_GIVE_UP_SECONDS = 600.0  # how long a 404 or another refusal of one checkpoint is tried again
_UPLOAD_TIMEOUT_SECONDS = 300.0


class Upload(TypedDict):
    uuid: str
    resources: Dict[str, int]


class UploadsFile(TypedDict):
    """`done` holds the uuids that need no more work, so that a record read twice is queued once."""

    waiting: List[Upload]
    done: List[str]


class Uploads:
    """The queue of checkpoints to upload, kept in a file."""

    def __init__(self, paths: RunPaths, link: Link, weather: Weather) -> None:
        self._paths = paths
        self._link = link
        self._weather = weather
        self._changed = threading.Condition()
        self._queue = cast(UploadsFile, read_json(paths.uploads) or {"waiting": [], "done": []})
        self.ended = threading.Event()

    def pending(self) -> int:
        return len(self._queue["waiting"])

    def on_core(self, record: Dict[str, Any]) -> None:
        """Queue a checkpoint record of the SDK, durably, before it goes into the outbox."""
        if record.get("type") != "checkpoint" or not _in_server_storage(record.get("storage")):
            return
        uuid, resources = record.get("uuid"), record.get("resources")
        if not isinstance(uuid, str) or not isinstance(resources, dict) or not _is_name(uuid):
            return
        with self._changed:
            known = self._queue["done"] + [upload["uuid"] for upload in self._queue["waiting"]]
            if uuid in known:
                return
            self._queue["waiting"].append({"uuid": uuid, "resources": resources})
            self._save()
            self._changed.notify_all()

    def run(self) -> None:
        """Body of the uploading thread, until `ended` is set."""
        backoff, refused_since = Backoff(low=0.5), 0.0
        while not self.ended.is_set():
            with self._changed:
                if not self._queue["waiting"]:
                    self._changed.wait(1.0)
                    continue
                upload = self._queue["waiting"][0]
            try:
                self._upload(upload)
            except (OSError, HttpError) as error:
                now = time.monotonic()
                if isinstance(error, HttpError) and not _is_lasting(error):
                    refused_since = 0.0  # the server is away: its checkpoint waits as long as it takes
                elif refused_since and now - refused_since > _GIVE_UP_SECONDS:
                    say(f"Checkpoint {upload['uuid']} is given up; its files stay here: {error}")
                    self._finish(upload)
                    refused_since = 0.0
                    continue
                else:
                    refused_since = refused_since or now
                self._weather.wait(backoff.seconds(error.retry_after if isinstance(error, Later) else None))
                continue
            shutil.rmtree(self._paths.checkpoint(upload["uuid"]), ignore_errors=True)
            self._finish(upload)
            backoff.reset()
            refused_since = 0.0

    def _upload(self, upload: Upload) -> None:
        """Raises HttpError or OSError; what is there already is overwritten with the same bytes."""
        folder = self._paths.checkpoint(upload["uuid"])
        base = f"/runner/v1/checkpoints/{quote(upload['uuid'])}"
        # Of a sharded checkpoint other hosts have the rest: their runners bring it, and the last one completes.
        files = [path for path in sorted(upload["resources"]) if (folder / path).is_file()]
        complete = json.dumps({"resources": upload["resources"]}).encode()
        missing: Optional[List[str]] = files
        while missing:
            for path in missing:
                self._put(base, folder, path)
            try:
                self._link.request("POST", f"{base}/complete", complete)
                return
            except Conflict as conflict:
                still = [path for path in _missing(conflict) if path in files]
                if not still or still == missing:
                    raise
                missing = still
        self._link.request("POST", f"{base}/complete", complete)  # a checkpoint without files

    def _put(self, base: str, folder: Path, path: str) -> None:
        if path.startswith("/") or ".." in PurePosixPath(path).parts:
            raise OSError(f"The checkpoint names the file {path!r}, which lies outside of it.")
        with (folder / path).open("rb") as file:
            size = file.seek(0, 2)
            file.seek(0)
            headers = {"Content-Length": str(size), "Content-Type": "application/octet-stream"}
            target = f"{base}/files/{quote(path)}"
            self._link.request("PUT", target, file, headers=headers, timeout=_UPLOAD_TIMEOUT_SECONDS)

    def _finish(self, upload: Upload) -> None:
        with self._changed:
            self._queue["waiting"].remove(upload)
            self._queue["done"].append(upload["uuid"])
            self._save()

    def _save(self) -> None:
        write_json(self._paths.uploads, self._queue)


def _is_lasting(error: HttpError) -> bool:
    """True for an answer that says the request itself is wrong (404 before its record has arrived, too)."""
    return isinstance(error, Answered) and not isinstance(error, (Later, Refused))


def _in_server_storage(storage: object) -> bool:
    kind = storage.get("type") if isinstance(storage, dict) else storage
    return kind == "server"


def _is_name(uuid: str) -> bool:
    return bool(uuid) and uuid not in (".", "..") and "/" not in uuid


def _missing(conflict: Conflict) -> List[str]:
    names = conflict.body.get("missing") if isinstance(conflict.body, dict) else None
    return [name for name in names or [] if isinstance(name, str)]
