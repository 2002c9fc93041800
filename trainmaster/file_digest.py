"""What a file's content is, in 32 bytes."""

from __future__ import annotations

import hashlib
from pathlib import Path

_BLOCK_BYTES = 1 << 20


def sha256_of(path: Path) -> str:
    """The SHA-256 of a file, in hexadecimal."""
    hashed = hashlib.sha256()
    with path.open("rb") as file:
        for block in iter(lambda: file.read(_BLOCK_BYTES), b""):
            hashed.update(block)
    return hashed.hexdigest()
