"""How a door and the server know each other: both prove the run's secret (docs/protocol.md, "Doors")."""

from __future__ import annotations

import hashlib
import hmac
import re
import secrets
from typing import Optional

#: of the server's first line and of the door's answer, newline included
HELLO_BYTES = 32 + 1 + 64 + 1
ANSWER_BYTES = 64 + 1
_HELLO = re.compile(r"([0-9a-f]{32}) ([0-9a-f]{64})\n")


def hello(secret: str, run_key: str) -> "tuple[bytes, bytes]":
    """(first line of who dials, the answer that the door must give)."""
    nonce = secrets.token_hex(16)
    line = f"{nonce} {_proof(secret, 'dial', run_key, nonce)}\n"
    return line.encode(), answer(secret, run_key, nonce)


def nonce_of(secret: str, run_key: str, line: bytes) -> Optional[str]:
    """The nonce of a first line whose proof holds, else None."""
    found = _HELLO.fullmatch(line.decode("latin-1"))
    if found is None or not hmac.compare_digest(found[2], _proof(secret, "dial", run_key, found[1])):
        return None
    return found[1]


def answer(secret: str, run_key: str, nonce: str) -> bytes:
    return f"{_proof(secret, 'listen', run_key, nonce)}\n".encode()


def _proof(secret: str, side: str, run_key: str, nonce: str) -> str:
    return hmac.new(secret.encode(), f"door|{side}|{run_key}|{nonce}".encode(), hashlib.sha256).hexdigest()
