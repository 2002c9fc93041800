"""What a process makes once, at first use, for all of its threads."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from typing import Generic, TypeVar

Made = TypeVar("Made")


class PerProcess(Generic[Made]):
    """A forked child makes its own: threads and sockets are the parent's."""

    def __init__(self, make: Callable[[], Made]) -> None:
        self._make = make
        self._forget()
        os.register_at_fork(after_in_child=self._forget)

    def _forget(self) -> None:
        self._making = threading.Lock()
        self._made: Made | None = None

    def get(self) -> Made:
        with self._making:
            if self._made is None:
                self._made = self._make()
            return self._made
