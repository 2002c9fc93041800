"""The data folder: who may enter it, its secrets, and short paths for Unix sockets."""

import hashlib
import os
import secrets
import stat
from pathlib import Path

from django.core.exceptions import ImproperlyConfigured

from embedded.account import Account, can_enter, current

SOCKET_PATH_LIMIT = 100  # bytes; the kernel's is 107 with the final zero


def prepare(path: Path, account: Account) -> Path:
    """Make the data folder, which the databases' account may pass through but not list."""
    path = path.absolute()
    missing = [folder for folder in [path, *path.parents] if not folder.exists()]
    _refuse_closed(path, account, missing[-1].parent if missing else path)
    for folder in reversed(missing):
        folder.mkdir(exist_ok=True)
        folder.chmod(0o755)  # ours from now on, whatever the umask
    path.chmod(0o700 if account.uid == os.geteuid() else 0o711)
    return path


def _refuse_closed(path: Path, account: Account, existing: Path) -> None:
    """Before anything is made: say so when the account cannot get there. Parents are not ours to open."""
    if not os.access(existing, os.W_OK | os.X_OK):
        raise ImproperlyConfigured(
            f"{path} cannot be created or written by {current().name}; choose another folder with --data or "
            "TRAINMASTER_DATA_DIR."
        )
    if path.exists() and account.uid != os.geteuid():
        existing = path.parent  # the folder itself is opened to the account, just as far as it needs
    if closed := can_enter(account, existing):
        raise ImproperlyConfigured(
            f"PostgreSQL runs as the account {account.name} (never as root), which cannot access {closed}, "
            f"so the data cannot be in {path}. Choose another folder with --data or "
            "TRAINMASTER_DATA_DIR (the default is /var/lib/trainmaster/server)."
        )


def secret(path: Path) -> str:
    """The secret in a 0600 file, made at the first call. Two makers at once agree: the first one wins."""
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError:
        return path.read_text().strip()
    with os.fdopen(descriptor, "w") as file:
        file.write(secrets.token_urlsafe(48))
    return path.read_text().strip()


def sockets(data: Path, account: Account, name: str) -> Path:
    """A 0700 folder of the account for one server's Unix socket.

    In the data folder; where that path is too long for a socket, under /run or /tmp by the path's hash.
    """
    folder = data / name
    if len(os.fsencode(folder / ".s.PGSQL.5432.lock")) > SOCKET_PATH_LIMIT:
        base = Path("/run" if os.access("/run", os.W_OK) else "/tmp")
        folder = base / f"trainmaster-{name}-{hashlib.sha256(os.fsencode(data)).hexdigest()[:16]}"
        _refuse_strangers(folder, account)
    account.owns(folder, 0o700)
    return folder


def _refuse_strangers(folder: Path, account: Account) -> None:
    """In a folder that everybody may write, somebody else could have made ours first."""
    try:
        status = folder.lstat()
    except FileNotFoundError:
        return
    if not stat.S_ISDIR(status.st_mode) or status.st_uid not in {os.geteuid(), account.uid}:
        raise ImproperlyConfigured(
            f"{folder} belongs to another user (user id {status.st_uid}); remove it or choose --data."
        )
