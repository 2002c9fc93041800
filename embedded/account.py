"""The unprivileged account that PostgreSQL and Redis run under when the server itself is root."""

import grp
import os
import pwd
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from django.core.exceptions import ImproperlyConfigured

NAME = "trainmaster-db"
STAND_INS = ("postgres", "nobody")


@dataclass(frozen=True)
class Account:
    name: str
    uid: int
    gid: int

    def owns(self, path: Path, mode: int) -> None:
        """Make `path` a folder of this account. Parents are made by the caller and never changed."""
        path.mkdir(exist_ok=True)
        os.chown(path, self.uid, self.gid)
        path.chmod(mode)

    @property
    def switch(self) -> dict[str, Any]:
        """The options with which subprocess starts a child as this account; none when we are it already."""
        return {} if os.geteuid() == self.uid else {"user": self.uid, "group": self.gid, "extra_groups": []}

    def run(self, command: list[str]) -> "subprocess.CompletedProcess[str]":
        """Run a short command as this account, in a known locale and place."""
        return subprocess.run(
            command,
            capture_output=True,
            text=True,
            check=False,
            cwd="/",
            env={"PATH": "/usr/bin:/bin", "LC_ALL": "C.UTF-8"},
            **self.switch,
        )


def current() -> Account:
    uid = os.geteuid()
    try:
        name = pwd.getpwuid(uid).pw_name
    except KeyError:
        raise ImproperlyConfigured(
            f"User id {uid} has no name in the password file, but PostgreSQL needs one. "
            "Start as a user with a name, or set DATABASE_URL to a PostgreSQL server."
        ) from None
    return Account(name, uid, os.getegid())


def for_databases() -> Account:
    """Ourselves when unprivileged; as root, the account of TRAINMASTER_DB_ACCOUNT or `trainmaster-db`.

    PostgreSQL refuses to run as root. `trainmaster-db` is made at the first start by useradd; where that is
    not possible an existing system account (postgres, nobody) stands in.
    """
    if os.geteuid() != 0:
        return current()
    if wanted := os.environ.get("TRAINMASTER_DB_ACCOUNT"):
        return _existing(wanted) or _refuse(wanted)
    if found := _existing(NAME) or _created():
        return found
    for name in STAND_INS:
        if found := _existing(name):
            return found
    return _refuse(NAME)


def _existing(name: str) -> Account | None:
    try:
        entry = pwd.getpwnam(name)
    except KeyError:
        return None
    if entry.pw_uid == 0:
        raise ImproperlyConfigured(
            f"TRAINMASTER_DB_ACCOUNT is {name!r}, which is root; PostgreSQL refuses to run as root."
        )
    return Account(name, entry.pw_uid, entry.pw_gid)


def _created() -> Account | None:
    useradd = shutil.which("useradd", path=os.environ.get("PATH", "") + ":/usr/sbin:/sbin")
    if useradd is None:
        return None
    command = [useradd, "--system", "--user-group", "--no-create-home", "--home-dir", "/nonexistent"]
    command += ["--shell", "/usr/sbin/nologin", NAME]
    subprocess.run(command, capture_output=True, check=False)
    return _existing(NAME)


def _refuse(name: str) -> Account:
    raise ImproperlyConfigured(
        f"PostgreSQL must not run as root, and there is no account {name!r} for it. "
        "Set TRAINMASTER_DB_ACCOUNT to an unprivileged account, or DATABASE_URL to a PostgreSQL server."
    )


def can_enter(account: Account, folder: Path) -> Path | None:
    """None when the account can reach the folder, else the first parent that is closed to it."""
    groups = {account.gid} | {group.gr_gid for group in grp.getgrall() if account.name in group.gr_mem}
    for parent in [*reversed(folder.parents), folder]:
        status = parent.stat()
        if account.uid == 0:
            continue
        if status.st_uid == account.uid:
            allowed = status.st_mode & 0o100
        elif status.st_gid in groups:
            allowed = status.st_mode & 0o010
        else:
            allowed = status.st_mode & 0o001
        if not allowed:
            return parent
    return None
