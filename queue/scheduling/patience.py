"""Patience: how far ahead of its start a gang may have hosts reserved, since slots that are free there may stay idle.

Without it, hosts are kept for a gang from its turn on. With it, only once the gang should have started within the
pool's patience and as long again as has gone by since its submission. So others start meanwhile, and every gang gets
its reservation at some time. It keeps it, whatever becomes of the estimates.
"""

from __future__ import annotations

from collections.abc import Hashable
from math import inf

from scheduling import reasons
from scheduling.reasons import Reason
from scheduling.world import Request, Snapshot


class Patience:
    """What one pass has found out about gangs that get no hosts yet."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._in_vain = 0
        self._pool, self._now = snapshot.pool, snapshot.now
        #: kind of gang -> when the first of them should start, and on how many hosts; claims only make it later
        self._early: dict[Hashable, tuple[float, int]] = {}

    def looks_at_more(self, reservations: int) -> bool:
        """Gangs that were looked at in vain count like reservations, so that few are looked at."""
        return reservations + self._in_vain < self._pool.max_reservations

    def known(self, request: Request, kind: Hashable) -> Reason | None:
        """Why no hosts are kept for it yet, if an earlier gang of its kind tells that already."""
        return self._reason(request, *self._early[kind]) if kind in self._early else None

    def refusal(self, request: Request, kind: Hashable, at: float, hosts: int) -> Reason | None:
        """Why no hosts are kept for the request yet; None if they are.

        `at`: when it should have started there at the latest, infinite if nobody knows. `hosts`: how many it takes.
        """
        reason = self._reason(request, at, hosts)
        if reason is not None:
            self._in_vain += 1
            if not request.failed_hosts:  # others of its kind may use these
                self._early[kind] = at, hosts
        return reason

    def _reason(self, request: Request, at: float, hosts: int) -> Reason | None:
        patience, now = self._pool.patience, self._now
        if patience is None or request.task_id in self._pool.reserved:
            return None
        waited = max(0.0, now - request.submitted_at)
        if waited >= patience if at == inf else at - now <= patience + waited:
            return None
        return reasons.unreserved(request.slots, hosts, at, waited, patience, now)
