"""Uploads checkpoints in the background: to the server, or to S3 by addresses that it signs.

They survive restarts and may outlive the ranks.
"""

from __future__ import annotations

import collections
import contextlib
import functools
import json
import os
import queue
import re
import shutil
import threading
import time
from pathlib import Path, PurePosixPath
from typing import Any, Callable, Deque, Dict, Iterator, List, Optional, Set, Tuple, TypedDict, cast
from urllib.parse import quote

from trainmaster.http import Answered, Conflict, HttpError
from trainmaster.jsonfile import read_json, write_json
from trainmaster.paths import RunPaths
from trainmaster.quantities import duration
from trainmaster.runner.file_uploads import FileUpload
from trainmaster.runner.link import Backoff, Link, Weather, is_lasting
from trainmaster.runner.shipping import say
from trainmaster.signed import StorageUnreachable

_GIVE_UP_SECONDS = 600.0  # how long a 404 or another refusal of one checkpoint is tried again
#: and a 404 once nobody can tell the server of the checkpoint any more: it was restored from an older backup
_UNTOLD_SECONDS = 15.0
_UNKNOWN, _WRONG_DIGEST, _NO_ROOM = 404, 422, 507
_MARK_EVERY_SECONDS = 1.0
_REMEMBERED_SENTENCES = 64
_NAME = re.compile("[0-9A-Za-z][0-9A-Za-z._-]{0,127}")  # of a folder, and part of an address
#: an upload that takes longer is told of, and again this often
_FIRST_AFTER_SECONDS = 5.0
_TOLD_EVERY_SECONDS = 10.0
_UNITS = ("bytes", "kB", "MB", "GB", "TB")


class _Upload(TypedDict):
    uuid: str
    resources: Dict[str, int]


class Upload(_Upload, total=False):
    """`to` is `server` (so it was before there was another) or `s3`."""

    to: str


class UploadsFile(TypedDict):
    """`done` holds the uuids that need no more work, so that a record read twice is queued once."""

    waiting: List[Upload]
    done: List[str]


class Uploads:
    """The queue of checkpoints to upload, kept in a file."""

    def __init__(self, paths: RunPaths, link: Link, weather: Weather, members: int) -> None:
        self._paths = paths
        self._has_peers = members > 1
        self._link = link
        self._weather = weather
        self._changed = threading.Condition()
        self._queue = cast(UploadsFile, read_json(paths.uploads) or {"waiting": [], "done": []})
        self._sentences: queue.SimpleQueue[Tuple[str, str]] = queue.SimpleQueue()
        self._told: Deque[str] = collections.deque(maxlen=_REMEMBERED_SENTENCES)
        self._refused_since: Dict[str, float] = {}  # by uuid, on the monotonic clock
        self._tried: Set[str] = set()  # uuids that were refused in this round
        self._marked_at = 0.0
        #: set when the server has taken in, or will never take in, all that this run has to tell
        self.all_told = threading.Event()
        self.ended = threading.Event()

    def pending(self) -> int:
        return len(self._queue["waiting"])

    def on_core(self, record: Dict[str, Any]) -> None:
        """Queue a checkpoint record of the SDK, durably, before it goes into the outbox."""
        to = _way_of(record.get("storage"))
        if record.get("type") != "checkpoint" or to is None:
            return
        uuid, resources = record.get("uuid"), record.get("resources")
        if not isinstance(uuid, str) or not isinstance(resources, dict) or not _NAME.fullmatch(uuid):
            return
        with self._changed:
            known = self._queue["done"] + [upload["uuid"] for upload in self._queue["waiting"]]
            if uuid in known:
                return
            self._queue["waiting"].append({"uuid": uuid, "resources": resources, "to": to})
            self._save()
            self._changed.notify_all()

    def run(self) -> None:
        """Body of the uploading thread, until `ended` is set."""
        backoff = Backoff(low=0.5)
        while not self.ended.is_set():
            upload = self._next()
            if upload is None:
                if self._tried:  # each that waits was refused: the next round begins later
                    self._tried.clear()
                    self._weather.wait(backoff.seconds())
                continue
            try:
                self._upload(upload)
            except (OSError, HttpError, ValueError) as error:  # ValueError: a name that no address can hold
                self._failed(upload, error)
                if isinstance(error, HttpError) and not is_lasting(error):
                    self._weather.wait(backoff.seconds(error))
                continue
            shutil.rmtree(self._paths.checkpoint(upload["uuid"]), ignore_errors=True)
            self._finish(upload)
            backoff.reset()

    def _next(self) -> Optional[Upload]:
        """The oldest that was not refused in this round, so that one that is refused for good holds up no other."""
        with self._changed:
            if not self._queue["waiting"]:
                self._changed.wait(1.0)
            waiting = self._queue["waiting"]
            return next((upload for upload in waiting if upload["uuid"] not in self._tried), None)

    def _failed(self, upload: Upload, error: Exception) -> None:
        """Let the others pass one that was refused, and give it up in the end."""
        uuid, now = upload["uuid"], time.monotonic()
        if isinstance(error, HttpError) and not is_lasting(error):
            # the server is away: its checkpoint waits as long as it takes
            self._refused_since.pop(uuid, None)
        elif now - self._refused_since.setdefault(uuid, now) > self._patience(error):
            given_up = (
                f"the upload of checkpoint {uuid[:8]} was abandoned; its files stay on this host: {error}"
            )
            say(given_up)
            self._tell(given_up, "ERROR")
            self._finish(upload)
            return
        else:
            self._tried.add(uuid)
        if _is_news(error):
            self._tell(f"checkpoint {uuid[:8]} is not uploaded yet: {error}", "WARNING")

    def _patience(self, error: Exception) -> float:
        """Seconds for which a refusal is tried again. Of a sharded checkpoint another host's runner may yet tell."""
        is_unknown = isinstance(error, Answered) and error.status == _UNKNOWN
        final = is_unknown and self.all_told.is_set() and not self._has_peers
        return _UNTOLD_SECONDS if final else _GIVE_UP_SECONDS

    def _upload(self, upload: Upload) -> None:
        """Raises HttpError or OSError; what is there already is overwritten with the same bytes."""
        folder = self._paths.checkpoint(upload["uuid"])
        base = f"/runner/v1/checkpoints/{quote(upload['uuid'])}"
        # Of a sharded checkpoint other hosts have the rest: their runners bring it, and the last one completes,
        # however long that takes, so nobody waits for it here.
        files = [path for path in sorted(upload["resources"]) if (folder / path).is_file()]
        complete = json.dumps({"resources": upload["resources"]}).encode()
        total = sum((folder / path).stat().st_size for path in files)
        progress = Progress(upload["uuid"], total, self._tell)
        missing = files
        while True:
            refused: Optional[Conflict] = None
            try:
                for path in missing:
                    self._put(upload, base, folder, path, progress)
            except (
                Conflict
            ) as conflict:  # all may have been there before, and only the answer lost: `complete` knows
                refused = conflict
            try:
                self._link.request("POST", f"{base}/complete", complete)
                break
            except Conflict as conflict:
                lacking = _missing(conflict)
                still = [path for path in lacking if path in files]
                if self._has_peers and lacking and not still:
                    break
                if not still or still == missing:
                    why = f"{conflict} {refused}" if refused else str(conflict)
                    raise Conflict(conflict.status, {"message": why}, "") from conflict
                missing = still
        progress.done()

    def _put(self, upload: Upload, base: str, folder: Path, path: str, progress: Progress) -> None:
        if path.startswith("/") or ".." in PurePosixPath(path).parts:
            raise OSError(f"The checkpoint contains the file {path!r}, which is outside it.")
        file = FileUpload(self._link, base, folder, path, functools.partial(self._moved, progress))
        if upload.get("to") == "s3":
            file.to_bucket()
        else:
            file.to_server()

    def _moved(self, progress: Progress, count: int) -> None:
        """The time of the queue's file is when bytes last went: the end of a detached run waits while some do."""
        progress.moved(count)
        now = time.monotonic()
        if count > 0 and now - self._marked_at > _MARK_EVERY_SECONDS:
            self._marked_at = now
            with contextlib.suppress(OSError):
                os.utime(self._paths.uploads)

    def _tell(self, sentence: str, level: str = "INFO") -> None:
        """For the log of the run, once: the same trouble comes again with every try."""
        if sentence not in self._told:
            self._told.append(sentence)
            self._sentences.put((level, sentence))

    def sentences(self) -> Iterator[Tuple[str, str]]:
        """(level, sentence) of what has happened since the last call, for the log of the run."""
        while True:
            try:
                yield self._sentences.get_nowait()
            except queue.Empty:
                return

    def _finish(self, upload: Upload) -> None:
        with self._changed:
            self._queue["waiting"].remove(upload)
            self._queue["done"].append(upload["uuid"])
            self._refused_since.pop(upload["uuid"], None)
            self._save()

    def _save(self) -> None:
        write_json(self._paths.uploads, self._queue)


def _is_news(error: Exception) -> bool:
    """A server that is away, or has not heard of the checkpoint yet, is none; what is wrong with S3 is."""
    if isinstance(error, Answered):
        is_of_storage = isinstance(error.body, dict) and error.body.get("of_storage") is True
        return is_of_storage or error.status in (_WRONG_DIGEST, _NO_ROOM)
    return isinstance(error, (OSError, StorageUnreachable))


def _way_of(storage: object) -> Optional[str]:
    """`server`, or `s3` with signed addresses; None when the ranks have brought it to its place themselves."""
    section = storage if isinstance(storage, dict) else {"type": storage}
    if section.get("type") == "s3":
        return "s3" if section.get("signed") is True else None
    return "server" if section.get("type") == "server" else None


def _missing(conflict: Conflict) -> List[str]:
    names = conflict.body.get("missing") if isinstance(conflict.body, dict) else None
    return [name for name in names or [] if isinstance(name, str)]


class Progress:
    """What the log says of an upload of one checkpoint's files that takes a while. `moved` may come at any time."""

    def __init__(
        self, uuid: str, total: int, say: Callable[[str], None], now: Callable[[], float] = time.monotonic
    ) -> None:
        self._name = f"checkpoint {uuid[:8]}"
        self._total = total
        self._say = say
        self._now = now
        self._moved = self._said_moved = 0
        self._began = self._said_at = now()
        self._next = self._began + _FIRST_AFTER_SECONDS

    def moved(self, count: int) -> None:
        self._moved += count
        now = self._now()
        if now < self._next:
            return
        rate = (self._moved - self._said_moved) / (now - self._said_at)
        self._say(f"{self._name}: {part_of(self._moved, self._total)}, {amount(max(0.0, rate))}/s")
        self._said_moved, self._said_at, self._next = self._moved, now, now + _TOLD_EVERY_SECONDS

    def done(self) -> None:
        """All files are stored; said only where the log has heard of it."""
        seconds = self._now() - self._began
        if self._said_at > self._began:
            rate = f"{amount(self._total / seconds)}/s"
            self._say(f"{self._name}: uploaded, {amount(self._total)} in {duration(seconds)}, {rate}")


def part_of(done: float, total: float) -> str:
    """`1.2 of 4.0 GB`: both in the unit of the larger."""
    unit = _unit(total)
    whole = amount(total, unit)
    return f"{amount(done, unit).split()[0]} of {whole}"


def amount(count: float, unit: Optional[int] = None) -> str:
    """`85 MB`, `1.2 GB`: powers of 1000, as disks are sold."""
    at = _unit(count) if unit is None else unit
    scaled = count / 1000.0**at
    digits = 0 if at == 0 or (unit is None and scaled >= 10) or scaled >= 100 else 1
    return f"{scaled:.{digits}f} {_UNITS[at]}"


def _unit(count: float) -> int:
    at = 0
    while count >= 1000 and at < len(_UNITS) - 1:
        count /= 1000.0
        at += 1
    return at
