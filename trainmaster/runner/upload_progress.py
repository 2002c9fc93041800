"""What the log says of a checkpoint's upload that takes a while."""

from __future__ import annotations

import time
from typing import Callable, Optional

from trainmaster.quantities import duration

_FIRST_AFTER_SECONDS = 5.0
_EVERY_SECONDS = 10.0
_UNITS = ("bytes", "kB", "MB", "GB", "TB")


class Progress:
    """The upload of one checkpoint's files from this host. `moved` may be called any number of times."""

    def __init__(
        self, uuid: str, total: int, say: Callable[[str], None], now: Callable[[], float] = time.monotonic
    ) -> None:
        self._name = f"checkpoint {uuid[:8]}"
        self._total = total
        self._say = say
        self._now = now
        self._moved = self._said_moved = 0
        self._began = self._said_at = now()
        self._next = self._began + _FIRST_AFTER_SECONDS

    def moved(self, count: int) -> None:
        self._moved += count
        now = self._now()
        if now < self._next:
            return
        rate = (self._moved - self._said_moved) / (now - self._said_at)
        self._say(f"{self._name}: {part_of(self._moved, self._total)}, {amount(max(0.0, rate))}/s")
        self._said_moved, self._said_at, self._next = self._moved, now, now + _EVERY_SECONDS

    def done(self) -> None:
        """All files are stored; said only where the log has heard of it."""
        seconds = self._now() - self._began
        if self._said_at > self._began:
            rate = f"{amount(self._total / seconds)}/s"
            self._say(f"{self._name}: uploaded, {amount(self._total)} in {duration(seconds)}, {rate}")


def part_of(done: float, total: float) -> str:
    """`1.2 of 4.0 GB`: both in the unit of the larger."""
    unit = _unit(total)
    whole = amount(total, unit)
    return f"{amount(done, unit).split()[0]} of {whole}"


def amount(count: float, unit: Optional[int] = None) -> str:
    """`85 MB`, `1.2 GB`: powers of 1000, as disks are sold."""
    at = _unit(count) if unit is None else unit
    scaled = count / 1000.0**at
    digits = 0 if at == 0 or (unit is None and scaled >= 10) or scaled >= 100 else 1
    return f"{scaled:.{digits}f} {_UNITS[at]}"


def _unit(count: float) -> int:
    at = 0
    while count >= 1000 and at < len(_UNITS) - 1:
        count /= 1000.0
        at += 1
    return at
