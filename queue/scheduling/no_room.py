"""Why a request finds no room: which host is reserved for others, or who should end first."""

from __future__ import annotations

from functools import cached_property
from typing import NamedTuple

from scheduling import reasons
from scheduling.board import Board
from scheduling.first_to_end import Ends
from scheduling.fitting import Shape
from scheduling.host import Host
from scheduling.prospects import Prospects
from scheduling.reasons import Reason
from scheduling.world import Request


class Facts(NamedTuple):
    """What is the same for all requests of a shape while no host changes.

    `kept`: a reserved host that would do. `whole`: so many whole hosts are needed. `first`: the first to end there.
    """

    changes: int
    kept: Host | None
    whole: int
    first: Request | None


class NoRoom:
    """Tells the reason of one request after the other."""

    def __init__(self, board: Board, prospects: Prospects, ends: Ends) -> None:
        self._board = board
        self._prospects = prospects
        self._ends = ends
        self._facts: dict[tuple[Shape, frozenset[str]], Facts] = {}

    def reason(self, request: Request, shape: Shape, own: int | None = None) -> Reason:
        """The reason that all requests of this shape share; with `own`, that of a job which holds so many slots."""
        whom = None if own is None else request.job_id
        _, kept, whole, first = self._facts_of(request, shape)
        if kept is not None:
            who = [by.called_to(whom) for by in kept.by]
            runs = dict.fromkeys(run.request.called_to(whom) for run in (*kept.stopping, *kept.runs))
            return reasons.kept_for(kept.free, kept.view.name, who, shape.need, list(runs))
        by = [first.called_to(whom)] if first else []
        ends = [f"{label} should finish first" for label in by]
        notes = [*self._prospects.notes(request), *ends, *self._cleaned]
        only = sorted(request.only_hosts)
        return reasons.no_room(request.slots, whole, notes[:4], own or 0, by, only, request.is_element)

    def _facts_of(self, request: Request, shape: Shape) -> Facts:
        key = (shape, request.only_hosts)
        found = self._facts.get(key)
        if found is None or found.changes != self._board.changes:
            self._facts[key] = found = self._found(request, shape)
        return found

    def _found(self, request: Request, shape: Shape) -> Facts:
        if not request.slots:
            return Facts(self._board.changes, None, 0, None)
        kept = self._kept(shape)
        if kept is not None:
            return Facts(self._board.changes, kept, 0, None)
        only, board = request.only_hosts, self._board
        caps = [host.cap for host in board.hosts if host.view.name in only] if only else board.by_cap
        largest = max(caps, default=0)
        whole = 0 if shape.need <= largest or not largest else -(-shape.need // largest)
        return Facts(board.changes, None, whole, self._ends.first(shape, bool(whole)))

    @cached_property
    def _cleaned(self) -> list[str]:
        return [
            reasons.cleaned(host.cleaned, f"of {host.view.name}")
            for host in self._board.hosts
            if host.cleaned
        ]

    def _kept(self, shape: Shape) -> Host | None:
        """A host that would do if it were not reserved: one that is free, or any if all that would do are reserved."""
        claimed = self._board.claimed.values()
        free = [h for h in claimed if h.free >= shape.need and not h.avoided(shape.avoid)]
        if free:
            return min(free, key=lambda host: host.index)
        if self._ends.open_host(shape):
            return None
        would_do = (h for h in self._board.hosts if h.cap >= shape.need and not h.avoided(shape.avoid))
        return next(would_do, None)
