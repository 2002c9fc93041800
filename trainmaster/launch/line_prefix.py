"""Put `[rank=N] ` before each line of a rank's output, where no spool keeps the ranks apart."""

from __future__ import annotations

import os
import threading
from typing import List, Tuple

_CHUNK_BYTES = 65536


class Prefixer:
    """Two pipes whose lines arrive on our own stdout and stderr with a prefix, each line in one write."""

    def __init__(self, prefix: bytes) -> None:
        self._prefix = prefix
        self._pipes = [os.pipe(), os.pipe()]
        self._threads: List[threading.Thread] = []

    def streams(self) -> Tuple[int, int]:
        """The ends that the rank writes to."""
        return self._pipes[0][1], self._pipes[1][1]

    def begin(self) -> None:
        """Called once the rank has been forked (threads do not survive a fork)."""
        for target, (reading, writing) in enumerate(self._pipes, start=1):
            os.close(writing)
            thread = threading.Thread(target=self._copy, args=(reading, target), daemon=True)
            thread.start()
            self._threads.append(thread)

    def finish(self, seconds: float = 2.0) -> None:
        """Let the rest through; a grandchild that keeps the pipe open holds us no longer than `seconds`."""
        for thread in self._threads:
            thread.join(seconds)

    def _copy(self, source: int, target: int) -> None:
        rest = b""
        while True:
            chunk = os.read(source, _CHUNK_BYTES)
            lines = (rest + chunk).split(b"\n")
            rest = lines.pop()
            if not chunk and rest:
                lines.append(rest)
            text = b"".join(self._prefix + line + b"\n" for line in lines)
            try:
                while text:
                    text = text[os.write(target, text) :]
            except OSError:  # nobody reads our output any more: the rank must not be stopped for it
                pass
            if not chunk:
                return
