"""Programs and files of this host, which it may lack: what they say, or nothing."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import Any, Dict, Optional, Sequence

_KEPT = ("PATH", "HOME", "LANG", "TMPDIR")


def text_of(path: Path) -> str:
    """The content of a file; empty if it cannot be read."""
    try:
        return path.read_text(errors="replace")
    except OSError:
        return ""


def output_of(
    command: Sequence[str], seconds: float, environment: Optional[Dict[str, str]] = None
) -> Optional[bytes]:
    """What a program prints; None if it cannot be started, takes longer than `seconds`, or fails."""
    try:
        return subprocess.run(
            command,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            timeout=seconds,
            check=True,
        ).stdout
    except (OSError, subprocess.SubprocessError):
        return None


def by_the_jobs_python(
    request: Dict[str, Any],
    words: Sequence[str],
    environment: Dict[str, str],
    seconds: float,
    *,
    default: str = "python3",
    content: bytes = b"",
) -> "subprocess.CompletedProcess[bytes]":
    """Run `words` by the Python that jobs get here (`activate` or `python` of the request, else `default`).

    It has their packages, and of this process's environment only what any program needs. Raises TimeoutExpired.
    """
    if request.get("activate"):
        command = ["sh", "-c", '. "$0" && exec python3 "$@"', str(request["activate"]), *words]
    else:
        command = [str(request.get("python") or default), *words]
    kept = {name: os.environ[name] for name in _KEPT if name in os.environ}
    return subprocess.run(
        command,
        input=content,
        env={**kept, **environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        timeout=seconds,
        check=False,
    )
