"""A checkpoint as one file, tar, tar.gz or zip, made while it is sent: a thread for a block at a time, none between."""

from __future__ import annotations

import tarfile
import zlib
from collections.abc import AsyncIterator, Generator, Mapping
from functools import partial
from zipfile import ZIP_DEFLATED, ZipFile

from experiments import stored_files
from experiments.models import Checkpoint
from shown.zip_stream import COMPRESSION, Sink, ZipEntry
from webui.waiting.threads import on_storage, stepped

BLOCK_BYTES = 1 << 20
#: ending of the file -> its media type
FORMATS = {"tar.gz": "application/gzip", "tar": "application/x-tar", "zip": "application/zip"}


def archive(checkpoint: Checkpoint, files: Mapping[str, int], kind: str) -> AsyncIterator[bytes]:
    """These files (path -> bytes) as an archive of this kind. It breaks off where one is not as long as that."""
    made = {"tar": _tar, "tar.gz": _compressed_tar, "zip": _zip}[kind](checkpoint, files)
    return stepped(made, partial(on_storage, checkpoint))


def one_file(checkpoint: Checkpoint, path: str, first: int, count: int) -> AsyncIterator[bytes]:
    """So many bytes of one file, from `first` on."""
    return stepped(_blocks(checkpoint, path, first, count), partial(on_storage, checkpoint))


def _blocks(checkpoint: Checkpoint, path: str, first: int, count: int) -> Generator[bytes]:
    with stored_files.store_of(checkpoint).open_file(path, first) as file:
        while count:
            block = file.read(min(BLOCK_BYTES, count))
            if not block:
                raise OSError(f"{path} of checkpoint {checkpoint.pk} ended {count} bytes early.")
            count -= len(block)
            yield block


def _tar(checkpoint: Checkpoint, files: Mapping[str, int]) -> Generator[bytes]:
    for path, size in sorted(files.items()):
        info = tarfile.TarInfo(path)
        info.size, info.mtime = size, int(checkpoint.reported_at.timestamp())
        yield info.tobuf(tarfile.PAX_FORMAT)
        yield from _blocks(checkpoint, path, 0, size)
        yield bytes(-size % tarfile.BLOCKSIZE)
    yield bytes(2 * tarfile.BLOCKSIZE)


def _compressed_tar(checkpoint: Checkpoint, files: Mapping[str, int]) -> Generator[bytes]:
    gzip = zlib.compressobj(COMPRESSION, wbits=16 + zlib.MAX_WBITS)
    for part in _tar(checkpoint, files):
        yield gzip.compress(part)
    yield gzip.flush()


def _zip(checkpoint: Checkpoint, files: Mapping[str, int]) -> Generator[bytes]:
    sink = Sink()
    with ZipFile(sink, "w", ZIP_DEFLATED, compresslevel=COMPRESSION) as into:
        for path, size in sorted(files.items()):
            with ZipEntry(into, path) as entry:
                for block in _blocks(checkpoint, path, 0, size):
                    entry.write(block)
                    yield sink.drain()
            if not size:
                into.writestr(path, b"")
    yield sink.drain()
