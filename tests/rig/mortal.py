"""A step of a process that is killed at a statement, and overtaken by others between its transactions."""

from __future__ import annotations

from collections.abc import Sequence


class Killed(BaseException):
    """The process that makes this step is gone: nothing in it catches that, and nothing of it happens any more."""


class Process:
    """One step's worker or web process: dies at a statement, and is overtaken by others between its transactions."""

    def __init__(self, dies_at: int, fates: Sequence[int], meanwhile: Sequence[tuple[int, int, int]]) -> None:
        self.statements, self.dies_at = 0, dies_at
        self.fates = list(fates)
        self.chances, self.meanwhile = 0, list(meanwhile)

    def statement(self) -> None:
        """Raises Killed at its time and ever after."""
        self.statements += 1
        if 0 < self.dies_at <= self.statements:
            raise Killed

    def others(self) -> list[tuple[int, int]]:
        """What happens now, before this process goes on."""
        self.chances += 1
        return [(what, choice) for at, what, choice in self.meanwhile if at == self.chances]

    def fate(self) -> int:
        return self.fates.pop(0) if self.fates else 0
