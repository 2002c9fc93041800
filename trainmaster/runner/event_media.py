"""Shows what training code writes for TensorBoard: images, histograms and texts become records like the SDK's own.

Only the folder of rank 0 is read, and each file once: how far it is covered stands in the outbox, as of other sources.
"""

from __future__ import annotations

import hashlib
import json
import os
import time
from itertools import islice
from pathlib import Path
from typing import Any, Callable, Dict, List, Tuple

from trainmaster import event_files
from trainmaster.paths import RunPaths
from trainmaster.protocol import Spec
from trainmaster.runner import summaries
from trainmaster.runner.event_files import files_below
from trainmaster.runner.outbox import Outbox
from trainmaster.runner.records import core_record

#: what one look may cost: the runner's other work waits for it
_LOOK_SECONDS = 0.2
_NAMES, _FILES = 5_000, 200
_READ_BYTES = 1024 * 1024


class EventMedia:
    """`unshipped` answers how many bytes of the outbox the server lacks."""

    def __init__(self, paths: RunPaths, spec: Spec, outbox: Outbox, unshipped: Callable[[], int]) -> None:
        self._folder = event_files.folder(str(paths.root), 0)
        self._trial = spec.get("trial")
        self._outbox = outbox
        self._unshipped = unshipped
        self._most_unshipped = spec["limits"]["spool_bytes"] // 2
        self._looked: Dict[Path, int] = {}  # how far each file was read, with or without a record
        self._not_read: Dict[Path, int] = {}  # files that are none of TensorBoard's, and their size then

    def look(self) -> bool:
        """Append what is new, for a fifth of a second at most; True: there is more. OSError of a full disk."""
        until = time.monotonic() + _LOOK_SECONDS
        if self._trial is None or not self._folder.is_dir() or self._unshipped() > self._most_unshipped:
            return False
        names = (name for name in islice(files_below(self._folder), _NAMES) if "tfevents" in name.name)
        for name in islice(names, _FILES):
            while self._read(name):
                if time.monotonic() > until or self._unshipped() > self._most_unshipped:
                    return True
        return False

    def _read(self, name: Path) -> bool:
        """Append the next records of a file; False when it has no more for now."""
        path = self._folder / name
        source = f"event-file:{hashlib.sha256(os.fsencode(name)).hexdigest()[:32]}"
        covered = self._outbox.ends.get(source, 0)
        at = max(covered, self._looked.get(path, 0))
        size = path.stat().st_size
        if at >= size or self._not_read.get(path) == size:
            return False
        try:
            messages, end = _messages(path, at)
        except OSError:
            messages, end = [], at
        found: List[Tuple[int, Dict[str, Any]]] = []
        for begin, place, message in messages:
            try:
                records = summaries.of_event(message)
            except summaries.UNREADABLE:
                continue
            # the last record alone says that the message is covered; whoever begins it again repeats what was sent
            found += [(begin, record) for record in records[:-1]] + [(place, each) for each in records[-1:]]
        run_id = self._trial["run_id"] if self._trial else None
        for place, record in found:
            data = json.dumps({"type": "media", "run_id": run_id, **record}).encode()
            self._outbox.append(core_record(source, place, data))
            self._outbox.note({"f": source, "e": place})
        self._looked[path] = end
        if end == at:  # the last record is not whole yet
            self._not_read[path] = size
        return end > at


def _messages(path: Path, at: int) -> Tuple[List[Tuple[int, int, bytes]], int]:
    """Whole messages from `at` on, some MB of them, each with its record's limits; and how far the file was read."""
    found: List[Tuple[int, int, bytes]] = []
    taken = 0
    with path.open("rb") as file:
        size = path.stat().st_size
        while taken < _READ_BYTES:
            file.seek(at)
            head = file.read(summaries.HEAD_BYTES)
            if len(head) < summaries.HEAD_BYTES:
                break
            length = summaries.length_of(head)
            end = at + summaries.HEAD_BYTES + length + summaries.TAIL_BYTES
            if end > size:
                break
            if 0 < length <= summaries.MESSAGE_BYTES:
                found.append((at, end, file.read(length)))
            taken += end - at
            at = end
    return found, at
