"""Unpacks the context folder: nothing in the archive can reach outside of the folder it is unpacked into."""

from __future__ import annotations

import os
import shutil
import tarfile
from pathlib import Path, PurePosixPath
from typing import IO, Callable, Set, Tuple, cast

from trainmaster.host.errors import AWAY, VerbError
from trainmaster.runner.full_disk import FULL


class Limited:
    """The next `size` bytes of a stream, and not one more. `moved` is called whenever some have come."""

    def __init__(self, stream: IO[bytes], size: int) -> None:
        self._stream = stream
        self.left = size
        self.moved: Callable[[], None] = lambda: None

    def read(self, size: int = -1) -> bytes:
        wanted = self.left if size < 0 else min(size, self.left)
        data = self._stream.read(wanted) if wanted else b""
        self.left -= len(data)
        if wanted and not data:
            raise VerbError(
                "incomplete",
                f"The archive of the context folder is truncated: {self.left} bytes are missing.",
            )
        self.moved()
        return data

    def drain(self) -> None:
        """Read what is left, so that the sender is not stopped in the middle of a write; it may end early."""
        while self.left:
            data = self._stream.read(min(self.left, 1024 * 1024))
            self.left = self.left - len(data) if data else 0


def unpack(archive: Limited, folder: Path) -> None:
    """Unpack a tar.gz into the existing empty `folder`. VerbError `unsafe_archive` names the member at fault.

    OSError: the disk is full or away.
    """
    links: Set[Tuple[str, ...]] = set()
    try:
        with tarfile.open(fileobj=cast("IO[bytes]", archive), mode="r|gz", errorlevel=2) as tar:
            for member in tar:
                _unpack_member(tar, member, folder, links)
    except (tarfile.TarError, EOFError, ValueError) as error:
        raise VerbError("bad_archive", f"The context folder's archive cannot be read: {error}.") from error
    except OSError as error:
        if error.errno in (*FULL, *AWAY):
            raise
        if isinstance(error, tarfile.ReadError) or "gzip" in str(error).lower():
            raise VerbError(
                "bad_archive", f"The context folder's archive cannot be read: {error}."
            ) from error
        raise VerbError("unpack", f"The context folder cannot be unpacked on the host: {error}.") from error
    archive.drain()  # what may follow the end of the tar


def _unpack_member(
    tar: tarfile.TarFile, member: tarfile.TarInfo, folder: Path, links: Set[Tuple[str, ...]]
) -> None:
    parts = _inside(member)
    if not parts:  # the folder itself
        return
    if any(parts[:depth] in links for depth in range(1, len(parts) + 1)):
        _refuse(member, "is written through a link that the archive created")
    target = folder.joinpath(*parts)
    target.parent.mkdir(parents=True, exist_ok=True)
    if member.isdir():
        target.mkdir(exist_ok=True)
        return
    if target.is_dir():
        _refuse(member, "replaces a folder of the same name")
    target.unlink(missing_ok=True)
    if member.issym():
        _check_link(member, parts)
        links.add(parts)
        target.symlink_to(member.linkname)
    elif member.islnk():
        _copy_hard_link(member, folder, target, links)
    elif member.isfile():
        source = tar.extractfile(member)
        assert source is not None
        _write(source, target, member.mode)
    else:
        _refuse(member, "is a device or a pipe; files, folders and links inside the folder are allowed")


def _inside(member: tarfile.TarInfo) -> Tuple[str, ...]:
    """The parts of the member's path, refused unless they stay below the folder."""
    path = PurePosixPath(member.name)
    if path.is_absolute():
        _refuse(member, "has an absolute path")
    if ".." in path.parts:
        _refuse(member, "has '..' in its path")
    return tuple(part for part in path.parts if part != ".")


def _check_link(member: tarfile.TarInfo, parts: Tuple[str, ...]) -> None:
    """Leading `..` climb real folders, since no parent is a link; a later one could climb out of a link's target."""
    target = PurePosixPath(member.linkname)
    climbs = 0
    for part in target.parts:
        if part != "..":
            break
        climbs += 1
    if target.is_absolute() or ".." in target.parts[climbs:] or climbs > len(parts) - 1:
        _refuse(member, f"is a link to {member.linkname!r}, which leaves the context folder")


def _copy_hard_link(member: tarfile.TarInfo, folder: Path, target: Path, links: Set[Tuple[str, ...]]) -> None:
    original = PurePosixPath(member.linkname)
    parts = tuple(part for part in original.parts if part != ".")
    through_link = any(parts[:depth] in links for depth in range(1, len(parts) + 1))
    if original.is_absolute() or ".." in parts or through_link:
        _refuse(member, f"is a hard link to {member.linkname!r}, which leaves the context folder")
    source = folder.joinpath(*parts)
    if not source.is_file():
        _refuse(member, f"is a hard link to {member.linkname!r}, which is not in the archive")
    shutil.copy2(source, target)


def _write(source: IO[bytes], target: Path, mode: int) -> None:
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW
    with os.fdopen(os.open(target, flags, (mode & 0o755) | 0o600), "wb") as file:
        shutil.copyfileobj(source, file, 1024 * 1024)


def _refuse(member: tarfile.TarInfo, why: str) -> None:
    raise VerbError(
        "unsafe_archive", f"The context folder's archive is rejected: its member {member.name!r} {why}."
    )
