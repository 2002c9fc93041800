"""Mount namespaces: what a process mounts in its own one is seen by it and its children alone, and ends with them.

Without privileges for the machine, a process gets those in a user namespace, where its account and group keep their
numbers. Files of other accounts belong to `nobody` there, and programs such as sudo do not work.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import stat
import tempfile
from pathlib import Path
from typing import Any, Collection, Optional

_CLONE_NEWNS, _CLONE_NEWUSER = 0x00020000, 0x10000000
_MS_RDONLY, _MS_NOSUID, _MS_NODEV, _MS_REMOUNT = 1, 2, 4, 32
_MS_BIND, _MS_REC, _MS_SLAVE = 4096, 16384, 1 << 19
#: flags of statvfs(3) that a mount keeps when it becomes read-only -> those of mount(2)
_KEPT = {2: 2, 4: 4, 8: 8, 1024: 1024, 2048: 2048, 4096: 1 << 21}
_MNT_DETACH = 2
_PR_SET_DUMPABLE = 4
_PRIVATE_BYTES = "size=16m,mode=0755"
_APPARMOR = Path("/proc/sys/kernel/apparmor_restrict_unprivileged_userns")
_ANSWER_BYTES = 4096


def enter() -> None:
    """From here on this process has mounts of its own; what the host mounts later appears there, too. OSError."""
    account, group = os.geteuid(), os.getegid()
    libc = _libc()
    if libc.unshare(_CLONE_NEWNS) != 0:
        _checked(libc.unshare(_CLONE_NEWNS | _CLONE_NEWUSER))
        Path("/proc/self/setgroups").write_text("deny")
        Path("/proc/self/uid_map").write_text(f"{account} {account} 1")
        Path("/proc/self/gid_map").write_text(f"{group} {group} 1")
    _mount("none", "/", "", _MS_REC | _MS_SLAVE)


def bind(source: str, target: str, read_only: bool = False) -> None:
    """Show `source` at `target`, which exists. OSError."""
    _mount(source, target, "", _MS_BIND | _MS_REC)
    if read_only:
        has = os.statvfs(target).f_flag
        kept = sum(flag for seen, flag in _KEPT.items() if has & seen)
        _mount("none", target, "", _MS_REMOUNT | _MS_BIND | _MS_RDONLY | kept)


def cover(folder: str, without: Collection[str] = ()) -> None:
    """Lay a folder of this process's own over `folder`, with what it had but `without` these names. OSError."""
    before = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        _mount("tmpfs", folder, "tmpfs", _MS_NOSUID | _MS_NODEV, _PRIVATE_BYTES)
        _fill(folder, f"/proc/self/fd/{before}", without)
    finally:
        os.close(before)


def cover_root(through: str) -> None:
    """The same for `/`; `through` is an empty folder. Changes the working directory. OSError."""
    _mount("tmpfs", through, "tmpfs", _MS_NOSUID | _MS_NODEV, _PRIVATE_BYTES)
    _fill(through, "/", ())
    os.chdir(through)
    libc = _libc()
    _checked(libc.pivot_root(b".", b"."))  # the former root is on top now
    _checked(libc.umount2(b".", _MNT_DETACH))
    os.chdir("/")
    with contextlib.suppress(OSError):  # the copy of itself that it got with its parent
        _checked(libc.umount2(through.encode(), _MNT_DETACH))


def problem(account: Optional[int] = None) -> Optional[str]:
    """Why a process of this account (None: ours) could not have a view of its own here; None if it could.

    Tried in a process of its own, of which nothing is left.
    """
    folder = tempfile.mkdtemp(prefix="trainmaster-view-")
    Path(folder).chmod(0o755)
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        said = "it ended without a word"
        try:
            _become(account)
            enter()
            cover_root(folder)
            cover("/run")
            said = ""
        except OSError as error:
            said = error.strerror or str(error)
        finally:
            os.write(writing, said.encode())
            os._exit(0)
    os.close(writing)
    with os.fdopen(reading, "rb") as answer:
        said = answer.read(_ANSWER_BYTES).decode()
    os.waitpid(child, 0)
    with contextlib.suppress(OSError):
        os.rmdir(folder)  # noqa: PTH106
    return _explained(said) if said else None


def _explained(said: str) -> str:
    try:
        restricted = _APPARMOR.read_text().strip() == "1"
    except OSError:
        restricted = False
    setting = f"kernel.{_APPARMOR.name}"
    return f"{said}: AppArmor restricts user namespaces ({setting} is 1)" if restricted else said


def _become(account: Optional[int]) -> None:
    if account is None:
        return
    os.setgroups([])
    os.setgid(account)
    os.setuid(account)
    _libc().prctl(_PR_SET_DUMPABLE, 1, 0, 0, 0)  # else its own /proc/self is not its own


def _fill(folder: str, source: str, without: Collection[str]) -> None:
    for name in os.listdir(source):  # noqa: PTH208  (perhaps a descriptor)
        if name not in without:
            with contextlib.suppress(OSError):  # such as what another account's folder hides
                _keep(f"{source.rstrip('/')}/{name}", Path(folder, name))


def _keep(source: str, target: Path) -> None:
    mode = os.lstat(source).st_mode
    if stat.S_ISLNK(mode):
        target.symlink_to(os.readlink(source))  # noqa: PTH115
        return
    if stat.S_ISDIR(mode):
        target.mkdir()
    else:
        target.touch()
    bind(source, str(target))


def _mount(source: str, target: str, kind: str, flags: int, options: str = "") -> None:
    words = [os.fsencode(text) for text in (source, target, kind, options)]
    _checked(_libc().mount(words[0], words[1], words[2], ctypes.c_ulong(flags), words[3]))


def _libc() -> Any:
    return ctypes.CDLL(None, use_errno=True)


def _checked(result: int) -> None:
    if result != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
