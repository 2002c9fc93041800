"""A zip or a folder that was dropped on a page becomes the files of a submission.

Nothing is trusted: sizes are counted while contents are read, and paths, links and kinds are refused in sentences.
What the command line leaves out is left out here too: `.detignore` and what is never sent.
"""

from __future__ import annotations

import lzma
import os
import stat
import struct
import zipfile
import zlib
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import IO, Any, NamedTuple

import pathspec
from django.conf import settings

from submissions.contexts import PlainFile, refused
from trainmaster import quantities
from trainmaster.context import ALWAYS_IGNORED, IGNORE_FILE

MOST_FILES = 20_000
#: a file that is so much larger than in the zip, and than LEAST_SUSPECT_BYTES, was made to fill a disk
MOST_RATIO = 200
LEAST_SUSPECT_BYTES = 8 * 1024 * 1024
_NEVER = (*ALWAYS_IGNORED, "__MACOSX/", ".DS_Store", "Thumbs.db")
#: of the record that ends a zip, of what leads to the one of zips beyond 4 GiB, and of a long name in the directory
_END_BYTES, _LOCATOR_BYTES, _ENTRY_BYTES = 22, 20, 400
_UNIX = 3  # ZipInfo.create_system of zips that know modes
#: what zipfile and its decompressors raise over bytes that are no zip of theirs
_DAMAGE = (
    zipfile.BadZipFile, zlib.error, lzma.LZMAError, struct.error, EOFError, OSError, RuntimeError, LookupError,
    ValueError,
)  # fmt: skip


class Unpacked(NamedTuple):
    """`notices`: sentences on what was left out or put elsewhere."""

    files: list[PlainFile]
    notices: list[str]


def from_zip(file: IO[bytes]) -> Unpacked:
    """The files of a zip. Raises Refusal."""
    _refuse_long_directory(file)
    try:
        with zipfile.ZipFile(file) as archive:
            infos = [info for info in archive.infolist() if not info.is_dir()]
            _refuse_too_many(len(infos))
            return _chosen(list(_of_zip(archive, infos)))
    except _DAMAGE as error:
        raise refused(f"The zip file cannot be read: {error}. Create it again.") from error


def from_folder(manifest: Any, contents: IO[bytes]) -> Unpacked:
    """The files of a folder as the page sends them. Raises Refusal.

    `manifest`: [{"path", "size" (bytes), "mtime" (milliseconds)}]; `contents`: all of them, one after the other.
    """
    if not isinstance(manifest, list):
        raise refused("The list of files is not a list; choose the folder again.")
    _refuse_too_many(len(manifest))
    files = []
    for entry in manifest:
        try:
            path, size, mtime = str(entry["path"]), int(entry["size"]), int(entry["mtime"]) // 1000
        except (KeyError, TypeError, ValueError, OverflowError) as error:
            raise refused("The list of files is damaged; choose the folder again.") from error
        content = contents.read(max(size, 0))
        if len(content) != size:
            raise refused(f"{path} changed during the upload; choose the folder again.")
        files.append(PlainFile(path, _mode_by(content), mtime, content))
    if contents.read(1):
        raise refused("The upload has more data than the list of files; choose the folder again.")
    return _chosen(files)


def _of_zip(archive: zipfile.ZipFile, infos: list[zipfile.ZipInfo]) -> Iterator[PlainFile]:
    ignored, total = _spec(_NEVER), 0
    for info in infos:
        if ignored.match_file(info.filename):
            continue
        _refuse_kind(info)
        content = _content(archive, info, settings.CONTEXT_BYTES - total)
        total += len(content)
        given = info.external_attr >> 16 & 0o777 if info.create_system == _UNIX else 0
        try:
            moment = datetime(*info.date_time, tzinfo=UTC)
        except ValueError:
            moment = datetime(1980, 1, 1, tzinfo=UTC)
        yield PlainFile(info.filename, given or _mode_by(content), int(moment.timestamp()), content)


def _refuse_long_directory(file: IO[bytes]) -> None:
    """Before it is read: a small zip can name millions of files. Its end record says how long its directory is."""
    size = file.seek(0, os.SEEK_END)
    file.seek(max(0, size - _END_BYTES - 0xFFFF - _LOCATOR_BYTES))
    tail = file.read()
    file.seek(0)
    end = tail.rfind(b"PK\5\6")
    if end < 0 or len(tail) < end + _END_BYTES:
        raise refused("The file is not a zip file or is incomplete. Create it again.")
    (length,) = struct.unpack_from("<L", tail, end + 12)
    is_zip64 = tail[max(0, end - _LOCATOR_BYTES) : end].startswith(b"PK\6\7")
    if length > MOST_FILES * _ENTRY_BYTES or is_zip64:
        raise refused(f"The zip file has too many files; allowed: at most {MOST_FILES}.")


def _refuse_kind(info: zipfile.ZipInfo) -> None:
    kind = stat.S_IFMT(info.external_attr >> 16) if info.create_system == _UNIX else 0
    if kind == stat.S_IFLNK:
        raise refused(
            f"{info.filename} is a link; a zip file may contain only files and folders. "
            "Replace the link with a copy of its target."
        )
    if kind not in {0, stat.S_IFREG}:
        raise refused(f"{info.filename} is neither a file nor a folder; remove it from the zip file.")
    if info.flag_bits & 1:
        raise refused(f"{info.filename} is encrypted; create the zip file without a password.")


def _content(archive: zipfile.ZipFile, info: zipfile.ZipInfo, left: int) -> bytes:
    """What the file holds, of at most `left` bytes whatever its header says."""
    with archive.open(info) as stream:
        content = stream.read(left + 1)
    if len(content) > left:
        limit = quantities.size(settings.CONTEXT_BYTES)
        raise refused(
            f"The zip file unpacks to more than the limit of {limit}, reached at {info.filename}. "
            "Remove what training does not need."
        )
    if len(content) > max(LEAST_SUSPECT_BYTES, MOST_RATIO * max(info.compress_size, 1)):
        raise refused(
            f"{info.filename} unpacks to {len(content) // max(info.compress_size, 1)} times its size in the zip "
            f"file; allowed: at most {MOST_RATIO} times. Remove it, and create it where the training runs."
        )
    return content


def _chosen(files: list[PlainFile]) -> Unpacked:
    """Without what is not sent, at the root of the one folder that all lie in."""
    never = _spec(_NEVER)
    kept = [file for file in files if not never.match_file(file.path)]
    notices, root = [], _common_root(kept)
    if root:
        kept = [file._replace(path=file.path[len(root) + 1 :]) for file in kept]
        notices.append(f"All files are in {root}, so its contents are used as the context folder.")
    own = next((file.content for file in kept if file.path == IGNORE_FILE), None)
    if own is not None:
        rules = _spec(own.decode("utf-8", "replace").splitlines())
        taken = [file for file in kept if not rules.match_file(file.path)]
        if count := len(kept) - len(taken):
            notices.append(
                f"{count} {'file was' if count == 1 else 'files were'} left out because of {IGNORE_FILE}."
            )
        kept = taken
    return Unpacked(kept, notices)


def _spec(lines: Any) -> pathspec.GitIgnoreSpec:
    try:
        return pathspec.GitIgnoreSpec.from_lines(lines)
    except ValueError as error:
        raise refused(f"{IGNORE_FILE} cannot be used: {error}.") from error


def _common_root(files: list[PlainFile]) -> str:
    roots = {file.path.split("/", 1)[0] if "/" in file.path else "" for file in files}
    root = roots.pop() if len(roots) == 1 else ""
    return "" if root in {"", ".", ".."} else root


def _mode_by(content: bytes) -> int:
    """Browsers and Windows know no modes: a script that names its interpreter can be run."""
    return 0o755 if content.startswith(b"#!") else 0o644


def _refuse_too_many(count: int) -> None:
    if count > MOST_FILES:
        raise refused(
            f"There are {count} files; allowed: at most {MOST_FILES}. Remove what training does not need."
        )
