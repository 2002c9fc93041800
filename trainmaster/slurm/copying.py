"""Copies what a program writes into files, beside where it went before."""

from __future__ import annotations

import os
import sys
import threading
import time
from pathlib import Path
from typing import Callable, List, Optional

_READ_BYTES = 64 * 1024
_END_SECONDS = 5.0  # for what children that keep running still hold open
_LOOK_SECONDS = 0.1


class Copies:
    """Pipes whose bytes arrive in several places each."""

    def __init__(self) -> None:
        self._threads: List[threading.Thread] = []
        self._writing: List[int] = []

    def pipe(self, targets: List[int], label: bytes = b"") -> int:
        """The end to write to; `label` is put before each line."""
        reading, writing = os.pipe()
        arguments = (reading, list(targets), label)
        self._threads.append(threading.Thread(target=_copy, args=arguments, daemon=True))
        self._writing.append(writing)
        return writing

    def begin(self) -> None:
        """Called when those that write have been started."""
        for writing in self._writing:
            os.close(writing)
        for thread in self._threads:
            thread.start()

    def finish(self, is_stopped: Callable[[], bool]) -> None:
        """Let the rest through. What is being stopped may still save, and without its pipe it would die of that.

        So there is no limit then: the host kills all of it at its deadline.
        """
        deadline = time.monotonic() + _END_SECONDS
        for thread in self._threads:
            while thread.is_alive() and (is_stopped() or time.monotonic() < deadline):
                thread.join(_LOOK_SECONDS)


def opened(path: str, appends: bool) -> Optional[int]:
    """The file to write to, None with a sentence on stderr if it cannot be written: the log has the lines anyway."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC | (0 if appends else os.O_TRUNC)
    try:
        return os.open(path, flags, 0o666)
    except OSError as error:
        hint = (
            f" The folder {Path(path).parent} does not exist." if isinstance(error, FileNotFoundError) else ""
        )
        print(
            f"WARNING: trainmaster: {path} cannot be written: {error.strerror}.{hint}",
            file=sys.stderr,
            flush=True,
        )
        return None


def _copy(source: int, targets: List[int], label: bytes) -> None:
    at_begin = True
    while True:
        data = os.read(source, _READ_BYTES)
        if not data:
            return
        if label:
            ends = data.endswith(b"\n")
            data = (
                data[:-1].replace(b"\n", b"\n" + label) + b"\n"
                if ends
                else data.replace(b"\n", b"\n" + label)
            )
            data, at_begin = (label + data if at_begin else data), ends
        for target in list(targets):
            if not _written(target, data):
                targets.remove(target)  # a full disk must not stop the program


def _written(target: int, data: bytes) -> bool:
    try:
        while data:
            data = data[os.write(target, data) :]
    except OSError as error:
        if target > 2:
            print(
                f"WARNING: trainmaster: an output file is not written any more: {error.strerror}.",
                file=sys.stderr,
            )
        return False
    return True
