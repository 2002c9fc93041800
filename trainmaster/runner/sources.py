"""The files of the spool that become records: streams of launcher and ranks, and what the SDK reports."""

from __future__ import annotations

import os
import re
import stat
import weakref
from pathlib import Path
from typing import List, Optional, Tuple

from trainmaster.paths import rank_of
from trainmaster.protocol import Limits
from trainmaster.runner.levels import levels_of
from trainmaster.runner.lines import BLOCK_BYTES, Block, LineSplitter, rank_runs, shown
from trainmaster.runner.records import lines_record

CORE_LINE_BYTES = 8 * 1024 * 1024
READ_BYTES = 256 * 1024  # per source and poll, so that one flood does not hold up the others
_BLOCKS_PER_BATCH = 16  # a byte becomes six at worst (`\udcff`), so the longest record fills 6/16 of a batch
_NAME = re.compile(r"(launcher|rank\d{1,9})\.(stdout|stderr)|core\.rank\d{1,9}\.jsonl")


def is_source(file_name: str) -> bool:
    return _NAME.fullmatch(file_name) is not None


class Source:
    """One file of the spool, and how far it has become records. OSError when it cannot be opened or read."""

    def __init__(self, path: Path, offset: int, limits: Limits) -> None:
        self.path = path
        self.name = path.name
        self.is_core = path.suffix == ".jsonl"
        self.rank = rank_of(path.name)
        self.stream = path.suffix[1:]
        self._limit = CORE_LINE_BYTES if self.is_core else limits["line_bytes"]
        largest = min(BLOCK_BYTES, limits["batch_bytes"] // _BLOCKS_PER_BATCH)
        self._block_bytes = 0 if self.is_core else largest
        self._open()
        #: rank and level of the last line: of those that continue it, too
        self._head: Tuple[Optional[int], Optional[str]] = (self.rank, None)
        self.gap = 0  # bytes dropped and not yet written down
        self.gap_end = 0
        self.full = False  # the last read brought all that it may: there is more
        self.look_anew = False  # at its end, see whether another file stands in its place
        self.rewind(offset)

    def rewind(self, offset: int) -> None:
        """Read on from `offset`, forgetting what was read beyond it."""
        before = os.pread(self._descriptor, 1, offset - 1) if offset and not self.is_core else b""
        self.splitter = LineSplitter(offset, self._limit, before, self._block_bytes)
        self.gap = 0

    def read(self, now: float) -> List[Block]:
        """The lines that came since; progress states that are due when nothing came."""
        data = os.pread(self._descriptor, READ_BYTES, self.splitter.offset)
        self.full = len(data) == READ_BYTES
        if data:
            return self.splitter.feed(data, now)
        if self.look_anew:
            self.look_anew = False
            if self._begins_anew():
                blocks = self.splitter.finish()
                self.rewind(0)
                return blocks
        return self.splitter.idle(now)

    def written_at(self) -> int:
        """When it was last written to, in nanoseconds of the host's clock."""
        return os.fstat(self._descriptor).st_mtime_ns

    def skip_backlog(self, limit: int) -> None:
        """Leave out lines, and count them, if more than `limit` bytes wait to be read; half of that then waits."""
        size = os.fstat(self._descriptor).st_size
        if size - self.splitter.offset <= limit:
            return
        target = size - limit // 2
        target += os.pread(self._descriptor, READ_BYTES, target).find(b"\n") + 1
        gap = self.gap + target - self.splitter.start
        self.rewind(target)
        self.gap, self.gap_end = gap, target

    def _open(self) -> None:
        self._descriptor = os.open(self.path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
        self._close = weakref.finalize(self, os.close, self._descriptor)

    def _begins_anew(self) -> bool:
        """Somebody cut the file short, or put another one in its place, which is open then."""
        own = os.fstat(self._descriptor)
        try:
            there = self.path.lstat()
        except FileNotFoundError:  # renamed, and what had it open writes on
            there = own
        if not stat.S_ISREG(there.st_mode) or os.path.samestat(own, there):
            return own.st_size < self.splitter.offset
        close_before = self._close
        self._open()
        close_before()
        return True

    def records(self, block: Block, at: float) -> List[bytes]:
        """The records of a block read at `at` (epoch seconds): one, or one for each run of lines of one rank."""
        first_rank, level = self._head
        stated = [(0, level)] if level else []
        whole = [(first_rank, block.text, block.end)]
        records = []
        for rank, raw, end in rank_runs(block) if self.rank is None and not block.continues else whole:
            text = shown(raw)
            levels = stated if block.continues else levels_of(text)
            cut = block.cut and end == block.end
            records.append(lines_record(self.name, end, at, rank, self.stream, levels, cut, text))
            if block.cut:  # its one line goes on in the next block
                self._head = rank, levels[0][1] if levels else None
        return records

    def drop(self, block: Block) -> None:
        """Count the block as missing. Its bytes without line ends, for these are no text."""
        self.gap += len(block.text) - block.text.count(b"\n")
        self.gap_end = block.end
        self._head = self.rank, None
