"""Tails the spool: what launcher, ranks and SDK wrote becomes records in the outbox, each once and in order."""

from __future__ import annotations

import os
import re
import time
from pathlib import Path
from typing import Any, Callable, Dict, List, Optional

from trainmaster.paths import RunPaths, rank_of
from trainmaster.protocol import Limits
from trainmaster.runner.lines import Line, LineSplitter, level_of, rank_prefix
from trainmaster.runner.outbox import Outbox
from trainmaster.runner.records import core_record, gap_record, log_record, parse_core

CORE_LINE_BYTES = 8 * 1024 * 1024
_READ_BYTES = 256 * 1024  # per source and poll, so that one flood does not hold up the others
_GAP_SECONDS = 1.0  # how often a gap that still grows is written down
_NAME = re.compile(r"(launcher|rank\d{1,9})\.(stdout|stderr)|core\.rank\d{1,9}\.jsonl")

CoreHandler = Callable[[Dict[str, Any]], None]


class Source:
    """One file of the spool, and how far it has become records."""

    def __init__(self, path: Path, offset: int, line_bytes: int) -> None:
        self.path = path
        self.name = path.name
        self.is_core = path.suffix == ".jsonl"
        self.rank = rank_of(path.name)
        self.stream = path.suffix[1:]
        self._limit = CORE_LINE_BYTES if self.is_core else line_bytes
        self._descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
        self._continued: Optional[Line] = None
        self._head: tuple[Optional[int], Optional[str]] = (
            None,
            None,
        )  # rank and level of a line that was cut
        self.gap = 0  # bytes dropped and not yet written down
        self.gap_end = 0
        self.rewind(offset)

    def rewind(self, offset: int) -> None:
        """Read on from `offset`, forgetting what was read beyond it."""
        before = os.pread(self._descriptor, 1, offset - 1) if offset else b""
        self.splitter = LineSplitter(offset, self._limit, after_cr=before == b"\r" and not self.is_core)
        self.gap = 0

    def read(self, now: float) -> List[Line]:
        """The lines that came since; progress states that are due when nothing came."""
        data = os.pread(self._descriptor, _READ_BYTES, self.splitter.offset)
        return self.splitter.feed(data, now) if data else self.splitter.idle(now)

    def log_line(self, line: Line, at: float) -> bytes:
        """The record of one line; a later piece of a cut line has the rank and level of its first."""
        rank, text, level = self.rank, line.text, None
        if self._continued is not None:
            rank, level = self._head
        else:
            if rank is None:
                rank, text = rank_prefix(text)
            level = level_of(text)
        self._continued, self._head = (line if line.cut else None), (rank, level)
        return log_record(self.name, line.end, at, rank, self.stream, level, text, line.cut)

    def close(self) -> None:
        os.close(self._descriptor)


class _Round:
    """What one poll adds to the outbox."""

    def __init__(self) -> None:
        self.records: List[bytes] = []
        self.size = 0
        self.notes: List[Dict[str, Any]] = []  # what the outbox has to know of them

    def add(self, record: bytes) -> None:
        self.records.append(record)
        self.size += len(record)


class Collector:
    """Moves the spool into the outbox. `unshipped` answers how many bytes of it the server lacks."""

    def __init__(
        self,
        paths: RunPaths,
        outbox: Outbox,
        limits: Limits,
        unshipped: Callable[[], int],
        on_core: CoreHandler,
    ) -> None:
        self._spool = paths.spool
        self._outbox = outbox
        self._limits = limits
        self._unshipped = unshipped
        self._on_core = on_core
        self._sources: Dict[str, Source] = {}
        self._gap_written = 0.0

    def poll(self) -> bool:
        """Append one round of records. True: something was there, look again soon. OSError: nothing was taken."""
        self._discover()
        now = time.monotonic()
        gaps_due = now - self._gap_written >= _GAP_SECONDS
        if gaps_due:
            self._gap_written = now
        return self._round(lambda source: source.read(now), gaps_due)

    def finish(self) -> None:
        """Append what has no line end, when nobody writes any more. OSError: nothing was taken."""
        self._round(lambda source: source.splitter.finish(), True)

    def _round(self, read: Callable[[Source], List[Line]], gaps_due: bool) -> bool:
        round_, at = _Round(), time.time()
        try:
            moved = False
            for source in self._sources.values():
                before = source.splitter.offset
                self._take(source, read(source), at, round_)
                if source.gap and gaps_due:
                    self._close_gap(source, round_)
                moved = moved or source.splitter.offset != before
            if round_.records:
                self._outbox.append(b"".join(round_.records))
        except OSError:
            for source in self._sources.values():
                source.rewind(self._outbox.ends.get(source.name, 0))
            raise
        for note in round_.notes:
            self._outbox.note(note)
        return moved or bool(round_.records)

    def _discover(self) -> None:
        for entry in os.scandir(self._spool):
            if entry.name in self._sources or not _NAME.fullmatch(entry.name):
                continue
            if entry.is_file(follow_symlinks=False):
                start = self._outbox.ends.get(entry.name, 0)
                self._sources[entry.name] = Source(Path(entry.path), start, self._limits["line_bytes"])

    def _take(self, source: Source, lines: List[Line], at: float, round_: _Round) -> None:
        limit = self._limits["spool_bytes"]
        if source.is_core:
            limit += limit // 4  # metrics and checkpoints are small: they go on when the log is cut already
        free = limit - self._unshipped()
        written: Optional[Line] = None
        for line in lines:
            record = None
            if round_.size < free:
                record = (
                    self._core_line(source, line, round_) if source.is_core else source.log_line(line, at)
                )
            if record is None:
                source.gap += len(line.text)
                source.gap_end = line.end
                continue
            if source.gap:
                self._close_gap(source, round_)
            round_.add(record)
            written = line
        if written is not None:
            round_.notes.append({"k": "log", "f": source.name, "e": written.end})

    def _core_line(self, source: Source, line: Line, round_: _Round) -> Optional[bytes]:
        """None for a line that is no SDK record: it counts as dropped."""
        parsed = None if line.cut else parse_core(line.text)
        if parsed is None:
            return None
        self._on_core(parsed[0])
        round_.notes.append({"k": "core", "d": parsed[0]})
        return core_record(source.name, line.end, parsed[1])

    def _close_gap(self, source: Source, round_: _Round) -> None:
        round_.add(gap_record(source.name, source.gap_end, source.gap))
        round_.notes.append({"k": "gap", "f": source.name, "e": source.gap_end, "bytes": source.gap})
        source.gap = 0
