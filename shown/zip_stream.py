"""A zip archive that is sent while it is written: it cannot seek, so the sizes of its files follow them."""

from __future__ import annotations

import io
from datetime import UTC, datetime
from typing import IO
from zipfile import ZIP_DEFLATED, ZipFile, ZipInfo

COMPRESSION = 1  # five times smaller at the speed of the network; more costs the other viewers


class Sink(io.RawIOBase):
    """What the archive writes to; `drain` gives what has come since."""

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


class ZipEntry:
    """A file of the archive, which is not there before its first byte."""

    def __init__(self, into: ZipFile, name: str) -> None:
        self._into, self._name = into, name
        self._file: IO[bytes] | None = None

    def __enter__(self) -> ZipEntry:
        return self

    def __exit__(self, *exc: object) -> None:
        if self._file is not None:
            self._file.close()

    def write(self, data: bytes) -> int:
        if self._file is None and data:
            info = ZipInfo(self._name, datetime.now(UTC).timetuple()[:6])
            info.compress_type = ZIP_DEFLATED
            info._compresslevel = COMPRESSION  # type: ignore[attr-defined]  # as ZipFile.open sets it for a name
            info.external_attr = 0o644 << 16
            self._file = self._into.open(info, "w", force_zip64=True)
        return self._file.write(data) if self._file is not None else 0
