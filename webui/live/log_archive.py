"""A log as a zip archive: a file for each rank and stream, one for the server's lines; never whole in memory."""

from __future__ import annotations

import io
import tempfile
from collections.abc import AsyncIterator, Callable, Generator
from dataclasses import replace
from datetime import UTC, datetime
from typing import IO
from zipfile import ZIP_DEFLATED, ZipFile, ZipInfo

from logs import read
from logs.filters import Filters
from logs.lines import NO_RANK, SERVER, STDERR, STDOUT, STREAM_NAMES, Line, raw
from logs.models import RankSeen
from webui.live.log_download import Joiner, pages, stepped

#: While a rank's stdout is written, its stderr waits: in memory up to this size, beyond it on disk.
WAITING_BYTES_MAX = 4 * 1024 * 1024
_COPIED_BYTES = 256 * 1024
_COMPRESSION = 1  # five times smaller at the speed of the network; more costs the other viewers


class _Sink(io.RawIOBase):
    """What the archive writes to; it cannot seek, so sizes follow their files."""

    def __init__(self) -> None:
        self._parts: list[bytes] = []

    def writable(self) -> bool:
        return True

    def write(self, data: bytes | bytearray | memoryview) -> int:  # type: ignore[override]
        self._parts.append(bytes(data))
        return len(data)

    def drain(self) -> bytes:
        parts, self._parts = self._parts, []
        return b"".join(parts)


def archive(task_id: str, filters: Filters | None, folder: str) -> AsyncIterator[bytes]:
    """The archive, piece by piece; its files stand in `folder`. Without filters (nothing can match) it is empty.

    `rank0.stdout.log`, `rank0.stderr.log` … hold exact bytes, `no-rank.*.log` what the launcher wrote, `server.log`
    the server's lines with their times. Raises filters.PatternTooSlow, and what the database raises.
    """
    return stepped(_files(task_id, filters, folder))


def _files(task_id: str, filters: Filters | None, folder: str) -> Generator[bytes]:
    sink = _Sink()
    with ZipFile(sink, "w", ZIP_DEFLATED, compresslevel=_COMPRESSION) as into:
        if filters is not None:
            end = read.last_number(task_id)
            for rank in _ranks(task_id, filters):
                for _ in _of_rank(into, task_id, replace(filters, ranks=frozenset({rank})), folder, end):
                    yield sink.drain()
            if _wants_server(filters):
                for _ in _of_server(into, task_id, filters, folder, end):
                    yield sink.drain()
    yield sink.drain()


def _ranks(task_id: str, filters: Filters) -> list[int]:
    """Ranks that have written, in order; lines outside any rank last."""
    seen = RankSeen.objects.filter(task_id=task_id).values_list("rank", flat=True).distinct()
    wanted = [rank for rank in seen if not filters.ranks or rank in filters.ranks]
    return sorted(wanted, key=lambda rank: (rank == NO_RANK, rank))


def _wants_server(filters: Filters) -> bool:
    return (not filters.ranks or NO_RANK in filters.ranks) and (
        not filters.streams or SERVER in filters.streams
    )


def _of_rank(into: ZipFile, task_id: str, filters: Filters, folder: str, end: int) -> Generator[None]:
    """One pass over the rank's chunks: its stdout goes into the archive, its stderr waits for its turn."""
    (rank,) = filters.ranks
    name = f"{folder}/no-rank" if rank == NO_RANK else f"{folder}/rank{rank}"
    wanted = filters.streams & {STDOUT, STDERR} if filters.streams else {STDOUT, STDERR}
    if not wanted:
        return
    joiners = {stream: Joiner() for stream in wanted}
    with tempfile.SpooledTemporaryFile(WAITING_BYTES_MAX) as waiting:
        with _Entry(into, f"{name}.{STREAM_NAMES[STDOUT]}.log") as entry:
            targets: dict[str, Callable[[bytes], int]] = {STDOUT: entry.write, STDERR: waiting.write}
            for lines in pages(task_id, replace(filters, streams=frozenset(wanted)), end):
                for stream, joiner in joiners.items():
                    targets[stream](joiner.join(line for line in lines if line.stream == stream))
                yield
            for stream, joiner in joiners.items():
                targets[stream](joiner.rest())
        if waiting.tell():
            waiting.seek(0)
            with _Entry(into, f"{name}.{STREAM_NAMES[STDERR]}.log") as entry:
                while piece := waiting.read(_COPIED_BYTES):
                    entry.write(piece)
                    yield


def _of_server(into: ZipFile, task_id: str, filters: Filters, folder: str, end: int) -> Generator[None]:
    with _Entry(into, f"{folder}/server.log") as entry:
        for lines in pages(task_id, replace(filters, streams=frozenset({SERVER})), end):
            entry.write(b"".join(map(_said, lines)))
            yield


def _said(line: Line) -> bytes:
    at = datetime.fromtimestamp(line.time, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    level = f"{line.level}: " if line.level else ""
    return f"[{at}] {level}".encode() + raw(line.text) + b"\n"


class _Entry:
    """A file of the archive, which is not there before its first byte."""

    def __init__(self, into: ZipFile, name: str) -> None:
        self._into, self._name = into, name
        self._file: IO[bytes] | None = None

    def __enter__(self) -> _Entry:
        return self

    def __exit__(self, *exc: object) -> None:
        if self._file is not None:
            self._file.close()

    def write(self, data: bytes) -> int:
        if self._file is None and data:
            info = ZipInfo(self._name, datetime.now(UTC).timetuple()[:6])
            info.compress_type = ZIP_DEFLATED
            info._compresslevel = _COMPRESSION  # type: ignore[attr-defined]  # as ZipFile.open sets it for a name
            info.external_attr = 0o644 << 16
            self._file = self._into.open(info, "w", force_zip64=True)
        return self._file.write(data) if self._file is not None else 0
