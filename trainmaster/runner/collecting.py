"""Tails the spool: what launcher, ranks and SDK wrote becomes records in the outbox, each once and in order."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any, Callable, Dict, List, Optional, Set, Tuple

from trainmaster.paths import RunPaths
from trainmaster.protocol import Limits
from trainmaster.runner.lines import Block
from trainmaster.runner.outbox import Outbox
from trainmaster.runner.records import core_record, gap_record, own_line, parse_core, timings_record
from trainmaster.runner.reports import Reports
from trainmaster.runner.sources import Source, is_source

_UPKEEP_SECONDS = 1.0  # how often a gap that still grows is written down, and files are looked at anew
_APPEND_BYTES = 4 * 1024 * 1024  # a round of many ranks does not have to fit into memory

CoreHandler = Callable[[Dict[str, Any]], None]


class _Round:
    """What is to be added to the outbox, and what the outbox has to know of it."""

    def __init__(self) -> None:
        self.records: List[bytes] = []
        self.size = 0
        self.notes: List[Dict[str, Any]] = []

    def add(self, record: bytes) -> None:
        self.records.append(record)
        self.size += len(record)


class Collector:
    """Moves the spool into the outbox. `unshipped` answers how many bytes of it the server lacks.

    `behind` says after a poll that there is more to be read at once.
    """

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
        #: the launcher's under None; of a rank's streams that both have lines, the one last written to comes last
        self._of_rank: Dict[Optional[int], List[Source]] = {}
        self._told_of: Set[str] = set()  # sources of which the log has heard that they hold what is no record
        self._upkeep_at = 0.0
        self._spool_changed = -1  # st_mtime_ns of the folder when it was looked through
        self.behind = False

    def poll(self) -> bool:
        """Append one round of records. True: something was there, look again soon.

        OSError: what was not appended is read again by the next poll.
        """
        now = time.monotonic()
        upkeep_due = now - self._upkeep_at >= _UPKEEP_SECONDS
        self._discover(upkeep_due)
        if upkeep_due:
            self._upkeep_at = now
            for source in self._sources.values():
                source.look_anew = True
        if self.behind:
            self._bound_backlog()
        return self._round(lambda source: source.read(now), upkeep_due)

    def finish(self) -> None:
        """Append what has no line end, when nobody writes any more. OSError as of `poll`."""
        self._round(lambda source: source.splitter.finish(), True)

    def _round(self, read: Callable[[Source], List[Block]], gaps_due: bool) -> bool:
        round_, at = _Round(), time.time()
        moved = False
        try:
            for sources in self._of_rank.values():
                before = [source.splitter.offset for source in sources]
                found = [(source, read(source)) for source in sources]
                if sum(1 for _, blocks in found if blocks) > 1:
                    found.sort(key=lambda one: one[0].written_at())
                for source, blocks in found:
                    self._take(source, blocks, at, round_)
                    if source.gap and gaps_due:
                        self._close_gap(source, round_)
                moved = moved or bool(round_.records)
                moved = moved or before != [source.splitter.offset for source in sources]
                if round_.size >= _APPEND_BYTES:
                    self._append(round_)
            self._append(round_)
        except OSError:
            for source in self._sources.values():
                source.rewind(self._outbox.ends.get(source.name, 0))
            raise
        self.behind = any(source.full for source in self._sources.values())
        return moved

    def _append(self, round_: _Round) -> None:
        if round_.records:
            self._outbox.append(b"".join(round_.records))
        for note in round_.notes:
            self._outbox.note(note)
        round_.records, round_.size, round_.notes = [], 0, []

    def _discover(self, whatever_the_clock_says: bool) -> None:
        """Open the files that are new. A folder whose time has not changed is left alone, but once a second."""
        changed = self._spool.stat().st_mtime_ns
        if changed == self._spool_changed and not whatever_the_clock_says:
            return
        self._spool_changed = changed
        for entry in os.scandir(self._spool):
            if entry.name in self._sources or not is_source(entry.name):
                continue
            if entry.is_file(follow_symlinks=False):
                start = self._outbox.ends.get(entry.name, 0)
                source = Source(Path(entry.path), start, self._limits)
                self._sources[entry.name] = source
                self._of_rank.setdefault(source.rank, []).append(source)

    def _bound_backlog(self) -> None:
        """Ranks that write faster than anybody reads must not fill the disk: what nobody gets to is skipped."""
        flooding = [source for source in self._sources.values() if source.full and not source.is_core]
        for source in flooding:
            source.skip_backlog(self._limits["spool_bytes"] // len(flooding))

    def _take(self, source: Source, blocks: List[Block], at: float, round_: _Round) -> None:
        limit = self._limits["spool_bytes"]
        if source.is_core:
            limit += limit // 4  # metrics and checkpoints are small: they go on when the log is cut already
        free = limit - self._unshipped()
        if source.is_core:
            self._take_core(source, blocks, free, round_)
            return
        for block in blocks:
            records = source.records(block, at) if round_.size < free else []
            # a block of log that overshot its limit would take the room that is kept for what the SDK writes
            if records and round_.size + sum(map(len, records)) <= free:
                self._add(source, records, block.end, round_)
            else:
                source.drop(block)

    def _take_core(self, source: Source, blocks: List[Block], free: int, round_: _Round) -> None:
        """What the SDK wrote: reports of metrics that follow each other become one record."""
        reports = self._no_reports()
        for block in blocks:
            read = self._read(source, block, round_) if round_.size + reports.size < free else None
            if read and reports.take(*read, block.end):
                continue
            self._add_reports(source, reports, round_)
            reports = self._no_reports()
            if read and reports.take(*read, block.end):  # it begins the next one
                continue
            records = self._core(source, *read, block.end, round_) if read else []
            if records:
                self._add(source, records, block.end, round_)
            else:
                source.drop(block)
        self._add_reports(source, reports, round_)

    def _no_reports(self) -> Reports:
        return Reports(self._limits["reports_per_record"], self._limits["batch_bytes"] // 2)

    def _add_reports(self, source: Source, reports: Reports, round_: _Round) -> None:
        record = reports.record(source.name)
        if record is not None:
            self._add(source, [record], reports.end, round_)

    def _add(self, source: Source, records: List[bytes], end: int, round_: _Round) -> None:
        """Add records that cover a source up to `end`, behind what was dropped of it before."""
        if source.gap:
            self._close_gap(source, round_)
        for record in records:
            round_.add(record)
        round_.notes.append({"k": "lines", "f": source.name, "e": end})

    def _read(self, source: Source, block: Block, round_: _Round) -> Optional[Tuple[Dict[str, Any], bytes]]:
        """The SDK's record of a line and its JSON; None for one that is no such record: it counts as dropped."""
        try:
            if block.cut or block.continues:
                raise ValueError("it is too long")
            return parse_core(block.text)
        except ValueError as error:
            self._say_garbage(source, error, round_)
            return None

    def _core(
        self, source: Source, record: Dict[str, Any], data: bytes, end: int, round_: _Round
    ) -> List[bytes]:
        """A record of the SDK as one of the outbox; none for one that is dropped."""
        if record.get("type") == "timings":
            return [timings_record(source.name, end, record)]
        if record.get("type") == "media" and self._unshipped() > self._limits["spool_bytes"] // 2:
            return []  # large, and nothing waits for it: metrics and checkpoints need the room
        self._on_core(record)
        round_.notes.append({"k": "core", "d": record})
        return [core_record(source.name, end, data)]

    def _say_garbage(self, source: Source, error: ValueError, round_: _Round) -> None:
        """Once per file, which any code of the job may write: a flood of garbage must not become one of sentences."""
        if source.name in self._told_of:
            return
        self._told_of.add(source.name)
        sentence = f"A record in {source.name} cannot be read and is skipped: {error}. Further ones are only counted."
        round_.add(own_line(time.time(), "ERROR", sentence))

    def _close_gap(self, source: Source, round_: _Round) -> None:
        round_.add(gap_record(source.name, source.gap_end, source.gap))
        round_.notes.append({"k": "gap", "f": source.name, "e": source.gap_end, "bytes": source.gap})
        source.gap = 0
