"""A log as a zip archive: a file for each rank and stream, one for the server's lines; never whole in memory."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import replace
from datetime import UTC, datetime
from zipfile import ZIP_DEFLATED, ZipFile

from django.db.models import Sum

from logs import read
from logs.filters import Filters
from logs.lines import NO_RANK, SERVER, STDERR, STDOUT, STREAM_NAMES, LogLine, raw
from logs.models import RankSeen
from logs.written import Joiner, Writer
from shown.zip_stream import COMPRESSION, Sink, ZipEntry

#: Chunks hold lines of many ranks, so that one pass over them serves so many ranks, with so many lines in all (one
#: rank may have more). While the first file is written the others wait: in memory up to this size in all, beyond it
#: on disk.
RANKS_TOGETHER, LINES_TOGETHER = 64, 10_000_000
WAITING_BYTES_MAX = 8 * 1024 * 1024
_COPIED_BYTES = 256 * 1024


def archive(task_id: str, filters: Filters | None, folder: str) -> Generator[bytes]:
    """The archive, piece by piece; its files stand in `folder`. Without filters (nothing can match) it is empty.

    `rank0.stdout.log`, `rank0.stderr.log` … hold exact bytes, `no-rank.*.log` what the launcher wrote, `server.log`
    the server's lines with their times. Raises Refusal, and what the database raises.
    """
    sink = Sink()
    with ZipFile(sink, "w", ZIP_DEFLATED, compresslevel=COMPRESSION) as into:
        if filters is not None:
            end = read.last_number(task_id)
            for ranks in _groups(task_id, filters):
                for _ in _of_ranks(into, task_id, replace(filters, ranks=frozenset(ranks)), folder, end):
                    yield sink.drain()
            if _wants_server(filters):
                for _ in _of_server(into, task_id, filters, folder, end):
                    yield sink.drain()
    yield sink.drain()


def _groups(task_id: str, filters: Filters) -> Iterator[list[int]]:
    """Ranks that have written, in order, lines outside any rank last: as many together as wait in little room."""
    seen = RankSeen.objects.filter(task_id=task_id).values("rank").annotate(written=Sum("lines"))
    lines = {row["rank"]: row["written"] for row in seen if not filters.ranks or row["rank"] in filters.ranks}
    group: list[int] = []
    waiting = 0
    for rank in sorted(lines, key=lambda rank: (rank == NO_RANK, rank)):
        if group and (len(group) == RANKS_TOGETHER or waiting + lines[rank] > LINES_TOGETHER):
            yield group
            group, waiting = [], 0
        group.append(rank)
        waiting += lines[rank]
    if group:
        yield group


def _wants_server(filters: Filters) -> bool:
    return (not filters.ranks or NO_RANK in filters.ranks) and (
        not filters.streams or SERVER in filters.streams
    )


def _of_ranks(into: ZipFile, task_id: str, filters: Filters, folder: str, end: int) -> Generator[None]:
    """One pass over the chunks of these ranks: the first file goes into the archive, the others wait for their turn."""
    wanted = [letter for letter in (STDOUT, STDERR) if not filters.streams or letter in filters.streams]
    if not wanted:
        return
    ranks = sorted(filters.ranks, key=lambda rank: (rank == NO_RANK, rank))
    files = [(rank, stream) for rank in ranks for stream in wanted]
    with ExitStack() as stack:
        waiting = {
            file: stack.enter_context(tempfile.SpooledTemporaryFile(WAITING_BYTES_MAX // len(files)))
            for file in files[1:]
        }
        with ZipEntry(into, _name(folder, *files[0])) as entry:
            targets = {file: spool.write for file, spool in waiting.items()} | {files[0]: entry.write}
            joiner = Joiner()
            for pieces in read.pieces(task_id, replace(filters, streams=frozenset(wanted)), upto=end):
                _hand_out(joiner.join(pieces), targets)
                yield
            _hand_out(joiner.rest(), targets)
        for file, spool in waiting.items():
            spool.seek(0)
            with ZipEntry(into, _name(folder, *file)) as entry:
                while piece := spool.read(_COPIED_BYTES):
                    entry.write(piece)
                    yield
            spool.close()


def _hand_out(
    parts: Iterable[tuple[Writer, bytes]], targets: Mapping[tuple[int, str], Callable[[bytes], int]]
) -> None:
    for (_, rank, stream), data in parts:
        targets[NO_RANK if rank is None else rank, stream](data)


def _name(folder: str, rank: int, stream: str) -> str:
    whose = "no-rank" if rank == NO_RANK else f"rank{rank}"
    return f"{folder}/{whose}.{STREAM_NAMES[stream]}.log"


def _of_server(into: ZipFile, task_id: str, filters: Filters, folder: str, end: int) -> Generator[None]:
    only = replace(filters, streams=frozenset({SERVER}))
    after = 0
    with ZipEntry(into, f"{folder}/server.log") as entry:
        while after < end:
            page = read.forward(task_id, after, only)
            entry.write(b"".join(_said(line) for line in page.lines if line.number <= end))
            after = page.upto
            yield


def _said(line: LogLine) -> bytes:
    at = datetime.fromtimestamp(line.time, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    level = f"{line.level}: " if line.level else ""
    return f"[{at}] {level}".encode() + raw(line.text) + b"\n"
