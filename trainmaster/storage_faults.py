"""What is wrong with a checkpoint storage, in a sentence that names it."""

from __future__ import annotations

import errno
import os
import pwd
from typing import Dict

#: errors of writing that name no file
OF_DISKS = (errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EIO, errno.ESTALE)

_AWAY = "does not answer", "check whether it is still mounted there"
_WORDS: Dict[int, "tuple[str, str]"] = {
    errno.EROFS: ("is read-only", "mount it writable"),
    errno.ENOSPC: ("is full", "free some space there"),
    errno.EDQUOT: ("has no quota left", "free some space there"),
    errno.ENOENT: ("does not exist", "mount or create it there"),
    errno.ENOTDIR: ("is not a folder", "set it to a folder"),
    errno.ESTALE: _AWAY,
    errno.ENOTCONN: _AWAY,
    errno.EIO: _AWAY,
    errno.ETIMEDOUT: _AWAY,
    errno.EHOSTDOWN: _AWAY,
}


class StorageFault(OSError):
    """A storage cannot be used; the message is a sentence that names it, `errno` that of the cause."""

    def __init__(self, sentence: str, number: "int | None" = None) -> None:
        super().__init__(sentence)
        self.errno = number


def is_of_file(error: BaseException) -> bool:
    """Whether it is of a file or its disk, where it might have been of a connection."""
    return isinstance(error, OSError) and (error.filename is not None or error.errno in OF_DISKS)


def folder_fault(folder: str, host: str, error: OSError) -> StorageFault:
    """Return the fault of a storage that is a folder (`shared_fs`, `directory`)."""
    if isinstance(error, StorageFault):
        return error
    is_wrong, remedy = _WORDS.get(error.errno or 0, ("cannot be used", "check what is wrong with it"))
    if error.errno in (errno.EACCES, errno.EPERM):
        is_wrong, remedy = f"cannot be written by the account {_account()}", "give it the right to"
    cause = error.strerror or str(error)
    return StorageFault(
        f"checkpoint storage {folder} on host {host} {is_wrong} ({cause}): {remedy}, or change checkpoint_storage",
        error.errno,
    )


def remote_fault(what: str, host: str, cause: object) -> StorageFault:
    """Return the fault of a storage in a cloud or at the server, as a host sees it."""
    text = str(cause).strip().rstrip(".") or type(cause).__name__
    return StorageFault(f"checkpoint storage {what} cannot be used from host {host}: {text}")


def _account() -> str:
    try:
        return pwd.getpwuid(os.geteuid()).pw_name
    except KeyError:
        return str(os.geteuid())
