"""What many ask for in a burst: done at once for the first, and once for all others when a rest is over."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Hashable
from typing import Any


class Paced:
    """Keeps what is done for one key apart in time. `later` is called with all that was asked for during a rest.

    It paces hints: a process that ends loses what waits here, and a beat or sweep finds what it was about. A forked
    child starts with nothing.
    """

    def __init__(self, later: Callable[[Any, list[Any]], None]) -> None:
        self._later = later
        self._forget()
        os.register_at_fork(after_in_child=self._forget)

    def _forget(self) -> None:
        self._lock = threading.Lock()
        self._until: dict[Hashable, float] = {}
        self._waiting: dict[Hashable, dict[Hashable, None]] = {}

    def is_due(self, key: Hashable, asked: Hashable) -> bool:
        """Whether to do it now. If not, it waits with the others of its key until their rest is over."""
        with self._lock:
            left = self._until.get(key, 0.0) - time.monotonic()
            if left <= 0:
                return True
            if key not in self._waiting:
                timer = threading.Timer(left, self._over, [key])
                timer.daemon = True
                try:
                    timer.start()
                except RuntimeError:  # there is no thread to be had: what is asked for must not fail for that
                    return True
            self._waiting.setdefault(key, {})[asked] = None
            return False

    def rest(self, key: Hashable, seconds: float) -> None:
        """Do nothing for this key for so long."""
        with self._lock:
            self._until[key] = time.monotonic() + seconds

    def _over(self, key: Hashable) -> None:
        with self._lock:
            asked = self._waiting.pop(key)
        self._later(key, list(asked))
