"""Brings files for TensorBoard to the server while they grow: what is new of each, behind what is there already.

The server's copy says how far it is, so that nothing comes twice and nothing is missing, whichever side starts anew.
"""

from __future__ import annotations

import hashlib
import os
import re
import threading
import time
from pathlib import Path
from typing import IO, Dict, Iterator, Optional, Set, Tuple
from urllib.parse import quote

from trainmaster import event_files
from trainmaster.http import Conflict, HttpError
from trainmaster.paths import RunPaths
from trainmaster.protocol import Spec
from trainmaster.runner.link import Backoff, Link, Weather, is_lasting
from trainmaster.runner.shipping import say

EVERY_SECONDS = 10.0
_PART_BYTES = 1024 * 1024
_BYTES_PER_SECOND = 4 * 1024 * 1024  # charts are no reason to fill a link that checkpoints need
_OF_RANK = re.compile(r"tensorboard(?:-rank(\d+))?")
#: storages in a folder that all hosts share: there the ranks copy their files themselves
_COPIED_BY_RANKS = ("shared_fs", "directory")


class _Sent:
    """How much of a file the server has, and what it was."""

    def __init__(self) -> None:
        self.offset = 0
        self.inode = -1
        self.digest = hashlib.sha256()

    def add(self, block: bytes) -> None:
        self.offset += len(block)
        self.digest.update(block)


class EventFiles:
    """The files of one run on this host; `run` is the body of its thread."""

    def __init__(self, paths: RunPaths, spec: Spec, link: Link, weather: Weather) -> None:
        self._paths = paths
        self._link = link
        self._weather = weather
        self._wanted = spec.get("trial") is not None
        self._wanted = self._wanted and spec["checkpoint_storage"].get("type") not in _COPIED_BY_RANKS
        self._sent: Dict[str, _Sent] = {}
        self._given_up: Set[str] = set()
        self._unreadable: Set[str] = set()  # said once
        self._finished = threading.Event()

    def pending(self) -> bool:
        """Whether something may still have to be brought."""
        return not self._finished.is_set()

    def run(self, ended: threading.Event) -> None:
        """Until `ended` (nobody writes any more), and then until all is there."""
        backoff = Backoff(low=0.5)
        while self._wanted:
            is_last = ended.is_set()
            try:
                self._bring_all()
            except HttpError as error:
                self._weather.wait(backoff.seconds(error))
                continue
            backoff.reset()
            if is_last:
                break
            ended.wait(EVERY_SECONDS)
        self._finished.set()

    def _bring_all(self) -> None:
        """What is new of every file. HttpError when the server is away, or takes nothing now."""
        for name, path in self._files():
            if name in self._given_up:
                continue
            try:
                self._bring(name, path)
                self._unreadable.discard(name)
            except OSError as error:
                if name not in self._unreadable:
                    say(f"{path} cannot be read for TensorBoard: {error}.")
                self._unreadable.add(name)
            except HttpError as error:
                if not is_lasting(error):
                    raise
                say(f"{path} was not uploaded to the server: {error}")
                self._given_up.add(name)

    def _files(self) -> Iterator[Tuple[str, Path]]:
        """(name on the server, file)."""
        root = self._paths.root
        if (root / event_files.MANUAL_MARK).exists():
            chosen = root / event_files.CHOSEN
            for relative in files_below(chosen):
                yield relative.as_posix(), chosen / relative
            return
        for folder in sorted(root.glob("tensorboard*")):
            found = _OF_RANK.fullmatch(folder.name)
            for relative in files_below(folder) if found else ():
                if found and event_files.is_event_file(relative.name):
                    named = event_files.named_by_rank(relative, int(found[1] or 0))
                    yield named.as_posix(), folder / relative

    def _bring(self, name: str, path: Path) -> None:
        sent = self._sent.setdefault(name, _Sent())
        status = path.stat()
        if status.st_size == sent.offset and status.st_ino == sent.inode:
            return
        with path.open("rb") as file:
            replace = False
            if sent.offset and (status.st_ino != sent.inode or status.st_size < sent.offset):
                sent, replace = self._continued(name, file, sent.offset, sent.digest.hexdigest())
            sent.inode = status.st_ino
            file.seek(sent.offset)
            while True:
                block = file.read(_PART_BYTES)
                if not (block or replace):
                    return
                try:
                    self._put(name, sent.offset, block, replace)
                except Conflict as conflict:  # the server has another length
                    body = conflict.body if isinstance(conflict.body, dict) else {}
                    if conflict.offset is None or not isinstance(body.get("sha256"), str):
                        raise
                    sent, replace = self._continued(name, file, conflict.offset, body["sha256"])
                    sent.inode = status.st_ino
                    file.seek(sent.offset)
                    continue
                sent.add(block)
                replace = False
                time.sleep(len(block) / _BYTES_PER_SECOND)

    def _continued(self, name: str, file: IO[bytes], offset: int, sha256: str) -> Tuple[_Sent, bool]:
        """What counts as sent if bytes up to `offset` are there, and whether the file replaces these.

        It is continued there if they are its own, otherwise it starts again.
        """
        same = _start_of(file, offset)
        fits = same is not None and same.digest.hexdigest() == sha256
        self._sent[name] = same if same is not None and fits else _Sent()
        return self._sent[name], not fits

    def _put(self, name: str, offset: int, block: bytes, replace: bool) -> None:
        query = [("offset", offset), *([("replace", "true")] if replace else [])]
        headers = {"Content-Type": "application/octet-stream"}
        self._link.request(
            "PUT", f"/runner/v1/event-files/{quote(name)}", block, query=query, headers=headers
        )


def _start_of(file: IO[bytes], size: int) -> Optional[_Sent]:
    """The first so many bytes; None where the file has fewer."""
    file.seek(0)
    found = _Sent()
    while found.offset < size:
        block = file.read(min(_PART_BYTES, size - found.offset))
        if not block:
            return None
        found.add(block)
    return found


def files_below(folder: Path) -> Iterator[Path]:
    """The files below a folder, which need not be there; links are not followed: they may lead anywhere."""
    for root, folders, names in os.walk(folder):
        folders.sort()
        for name in sorted(names):
            path = Path(root, name)
            if path.is_file() and not path.is_symlink() and not name.startswith("."):
                yield path.relative_to(folder)
