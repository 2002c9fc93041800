"""JSON files that other processes read while they are written: whole or not there, never torn."""

from __future__ import annotations

import errno
import json
import os
import stat
import uuid
from pathlib import Path
from typing import Any, Dict, Optional

from trainmaster import bounded_json

#: Files that Trainmaster writes are far smaller.
READ_BYTES_MAX = 64 * 1024 * 1024
#: What opening a path says when its owner has put something else in the place of the file, or has locked it away.
_SPOILED = (errno.EACCES, errno.ELOOP, errno.ENOTDIR, errno.ENXIO)


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


def make_json(path: Path, value: object) -> bool:
    """Write `path` only if it is not there; the first of several callers wins. True: this call made it."""
    beside = path.with_name(f".{path.name}.{uuid.uuid4().hex[:8]}")
    write_json(beside, value)
    try:
        os.link(beside, path)
    except FileExistsError:
        return False
    finally:
        beside.unlink(missing_ok=True)
    return True


def read_json(path: Path) -> Optional[Any]:
    """The value in `path`, or None when it is not there; ValueError when it is not a file of JSON."""
    try:
        return bounded_json.loads(_text(path))
    except FileNotFoundError:
        return None


def read_object(path: Path) -> Dict[str, Any]:
    """The object in a file that the job can write; empty when it is not there, and when it is anything else."""
    try:
        found = read_json(path)
    except ValueError:
        return {}
    except OSError as error:
        if error.errno not in _SPOILED:
            raise
        return {}
    return found if isinstance(found, dict) else {}


def _text(path: Path) -> str:
    """Raises ValueError for a pipe in the place of the file, where reading would wait forever, and for a huge file."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode) or status.st_size > READ_BYTES_MAX:
            raise ValueError(f"{path} is not a regular file of at most {READ_BYTES_MAX} bytes")
        with open(descriptor, "rb", closefd=False) as file:
            return file.read(READ_BYTES_MAX).decode("utf-8")
    finally:
        os.close(descriptor)
