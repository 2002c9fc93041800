"""JSON files that other processes read while they are written: whole or not there, never torn."""

from __future__ import annotations

import json
import os
import uuid
from pathlib import Path
from typing import Any, Optional

from trainmaster import bounded_json


def write_json(path: Path, value: object, mode: int = 0o600) -> None:
    """Replace `path` by `value` in one step (write, then rename), with permissions `mode`."""
    beside = path.with_name(f".{path.name}.{uuid.uuid4().hex[:8]}")
    descriptor = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, mode)
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            file.write(json.dumps(value))  # json.dump takes ten times as long: it encodes in Python
        beside.replace(path)
    except BaseException:
        beside.unlink(missing_ok=True)
        raise


def make_json(path: Path, value: object, mode: int = 0o600) -> bool:
    """Write `path` only if it is not there; the first of several callers wins. True: this call made it."""
    beside = path.with_name(f".{path.name}.{uuid.uuid4().hex[:8]}")
    write_json(beside, value, mode)
    try:
        os.link(beside, path)
    except FileExistsError:
        return False
    finally:
        beside.unlink(missing_ok=True)
    return True


def read_json(path: Path) -> Optional[Any]:
    """The value in `path`, or None when it is not there; ValueError when it is not JSON."""
    try:
        return bounded_json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None
