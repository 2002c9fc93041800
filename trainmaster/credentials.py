"""Tokens and pinned certificates, kept per server in a file that only its owner can read."""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import os
from pathlib import Path
from typing import Any, Dict, Iterator, List, Optional

#: Determined's client salts with this before it hashes; it keeps plain passwords off the wire and out of logs
_SALT = "GubPEmmotfiK9TMD6Zdw"


class UnreadableCredentials(Exception):
    """The file of credentials is no such file any more; the message is a sentence."""


def salted_hash(password: str) -> str:
    """What stands for a password on the wire; an empty one stays empty."""
    return hashlib.sha512((_SALT + password).encode()).hexdigest() if password else ""


def config_folder() -> Path:
    base = os.environ.get("XDG_CONFIG_HOME")
    return (Path(base) if base else Path.home() / ".config") / "trainmaster"


class Credentials:
    """What is remembered for one server: tokens by user name, who is active, the pinned certificate."""

    def __init__(self, url: str, folder: Optional[Path] = None) -> None:
        self._url = url
        self._file = (folder or config_folder()) / "auth.json"

    @property
    def active_user(self) -> Optional[str]:
        return self._mine().get("active")

    @property
    def pin(self) -> Optional[str]:
        """SHA-256 of the certificate that was accepted for this server, in hex."""
        return self._mine().get("cert_sha256")

    def token(self, user: str) -> Optional[str]:
        found = self._mine().get("tokens", {}).get(user)
        return found if isinstance(found, str) else None

    @property
    def users(self) -> List[str]:
        """All whose token is kept."""
        return sorted(self._mine().get("tokens", {}))

    def remember(self, user: str, token: str, active: bool = True) -> None:
        """Keep the token, and make its user the active one (`-u`, for one command, does not)."""
        with self._changing() as mine:
            mine.setdefault("tokens", {})[user] = token
            if active:
                mine["active"] = user

    def forget(self, user: str) -> None:
        with self._changing() as mine:
            mine.get("tokens", {}).pop(user, None)
            if mine.get("active") == user:
                mine.pop("active")

    def remember_pin(self, sha256: str) -> None:
        with self._changing() as mine:
            mine["cert_sha256"] = sha256

    def _all(self) -> Dict[str, Any]:
        try:
            found = json.loads(self._file.read_text(encoding="utf-8"))
        except FileNotFoundError:
            return {}
        except (OSError, ValueError) as error:
            raise UnreadableCredentials(
                f"{self._file} cannot be read ({error}); remove it and log in again."
            ) from error
        return found if isinstance(found, dict) else {}

    def _mine(self) -> Dict[str, Any]:
        found = self._all().get("masters", {}).get(self._url, {})
        return found if isinstance(found, dict) else {}

    @contextlib.contextmanager
    def _changing(self) -> Iterator[Dict[str, Any]]:
        """This server's part of the file, written back whole; two commands at once do not lose each other's."""
        self._file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        lock = os.open(str(self._file.with_suffix(".lock")), os.O_CREAT | os.O_RDWR, 0o600)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX)
            everything = self._all()
            yield everything.setdefault("masters", {}).setdefault(self._url, {})
            self._write(json.dumps(everything, indent=2))
        finally:
            os.close(lock)

    def _write(self, text: str) -> None:
        new = self._file.with_suffix(f".{os.getpid()}")
        handle = os.open(str(new), os.O_CREAT | os.O_WRONLY | os.O_TRUNC, 0o600)
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(text)
        new.replace(self._file)
