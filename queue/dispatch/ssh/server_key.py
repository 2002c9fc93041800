"""The server's own SSH key: made at first use, kept in DATA_DIR/ssh, readable by its account alone."""

from __future__ import annotations

import os
import tempfile
from contextlib import suppress
from functools import cache
from pathlib import Path

import asyncssh
from django.conf import settings


def _folder() -> Path:
    folder = Path(settings.DATA_DIR) / "ssh"
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    return folder


def _make(path: Path) -> None:
    """Write a new key; of two processes that do it at once, the first wins and both use its key."""
    key = asyncssh.generate_private_key("ssh-ed25519", comment="trainmaster")
    descriptor, name = tempfile.mkstemp(dir=path.parent, prefix=".id_ed25519.")  # mkstemp makes it 0600
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(key.export_private_key())
            file.flush()
            os.fsync(file.fileno())
        with suppress(FileExistsError):
            os.link(name, path)
    finally:
        Path(name).unlink()


@cache
def _load(path: Path) -> asyncssh.SSHKey:
    if not path.exists():
        _make(path)
    return asyncssh.read_private_key(path)


def private_key() -> asyncssh.SSHKey:
    """The key that the server logs in with."""
    return _load(_folder() / "id_ed25519")


def public_key() -> str:
    """The line for `authorized_keys` on the hosts."""
    return f"{openssh_line(private_key())} trainmaster"


def openssh_line(key: asyncssh.SSHKey) -> str:
    """`ssh-ed25519 AAAA…`: the key without its comment."""
    return " ".join(key.export_public_key().decode().split()[:2])


def fingerprint(line: str) -> str:
    """`SHA256:…` of a public key in OpenSSH's form, as `ssh-keygen -lf` prints it."""
    return asyncssh.import_public_key(line).get_fingerprint()
