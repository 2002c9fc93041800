"""Put `[rank=N] ` before each line of a rank's output, where no spool keeps the ranks apart."""

from __future__ import annotations

import os
import select
import threading
import time
from typing import List, Tuple

from trainmaster.runner.lines import PROGRESS_SECONDS, LineSplitter, shown

_CHUNK_BYTES = 65536
_LINE_BYTES = 1024 * 1024  # a longer line goes on in the next


class Prefixer:
    """Two pipes whose lines arrive on our own stdout and stderr with a prefix, each line in one write.

    A progress bar arrives as a line of its last state, once a second: ranks that share a terminal or a file must not
    overwrite each other.
    """

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
        splitter = LineSplitter(0, _LINE_BYTES)
        chunk = b""
        ended = False
        readable = select.poll()  # unlike select() it takes descriptors from 1024 on
        readable.register(source, select.POLLIN)
        while not ended:
            ready = bool(readable.poll(PROGRESS_SECONDS * 1000))
            chunk = os.read(source, _CHUNK_BYTES) if ready else b""
            ended = ready and not chunk
            now = time.monotonic()
            blocks = (
                splitter.finish() if ended else splitter.feed(chunk, now) if chunk else splitter.idle(now)
            )
            lines = [line for block in blocks for line in shown(block.text).split(b"\n")]
            self._write(target, b"".join(self._prefix + line + b"\n" for line in lines))

    def _write(self, target: int, text: bytes) -> None:
        try:
            while text:
                text = text[os.write(target, text) :]
        except OSError:  # nobody reads our output any more: the rank must not be stopped for it
            return
