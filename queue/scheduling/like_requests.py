"""Requests that are alike: what is found out of one of them in a pass holds for all behind it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from operator import attrgetter

from scheduling.board import Board
from scheduling.fitting import Shape
from scheduling.host import Host
from scheduling.reasons import Reason
from scheduling.runs import Rights, Standing
from scheduling.world import Request

#: what requests of one group have in common, besides their rights and the hosts that windows close to them
kind_of: Callable[[Request], tuple[object, ...]] = attrgetter(
    "slots", "single_host", "avoid_hosts", "failed_hosts", "only_hosts", "preemptible", "yields"
)


@dataclass(slots=True, eq=False)
class Group:
    """Requests alike in shape and rights. While one of them is stuck, so are all behind it.

    `stuck_at`, `kept_at`: number of hosts that had been eased, and kept, when that was found out. `own`: (job, slots
    that it holds) -> the same reason in its words, for a search whose other trials, or an array whose other elements,
    are in the way.
    """

    shape: Shape
    hopeless: Reason | None
    rights: Rights
    borrows: bool
    reserves: bool
    stuck: Reason | None = None
    stuck_at: int = -1
    kept_at: int = -1
    own: dict[tuple[str, int], Reason] = field(default_factory=dict)
    #: kinds of requests, as windows tell them apart, for which no host could be kept
    fruitless: set[object] = field(default_factory=set)

    def is_stuck(self, board: Board, why: Reason) -> None:
        """Note that no request of the group finds room on the board as it is now."""
        self.stuck, self.stuck_at, self.kept_at = why, len(board.eased), len(board.kept)
        self.own.clear()

    def may_find(self, board: Board, asker: Standing) -> bool:
        """May one who stands there find room? After one that was stuck, only on a host that was eased since."""
        if self.stuck is None:
            return True
        if self.stuck_at == len(board.eased):
            return False
        if self.kept_at != len(board.kept):  # work may be lent more hosts
            return True
        eased = dict.fromkeys(board.eased[self.stuck_at :])
        return any(self._helps(board.hosts[index], asker) for index in eased)

    def _helps(self, host: Host, asker: Standing) -> bool:
        """May what is free, comes free or may be stopped there be enough? In doubt, yes."""
        if host.avoided(self.shape.avoid):
            return False
        if not (host.pledged or self.shape.single_host):
            return True  # as one of several
        missing = self.shape.need - (host.free + host.coming - host.pledged)
        for run in host.runs if host.cap - host.pledged >= self.shape.need else ():
            if missing <= 0:
                break
            if asker < self.rights.line(run):
                missing -= run.parts[host.index]
        return missing <= 0
