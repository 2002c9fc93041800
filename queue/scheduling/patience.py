"""Patience: how far ahead of its start a gang may have hosts reserved, since slots that are free there may stay idle.

Without it, hosts are kept for a gang from its turn on. With it, only once the gang should have started within the
pool's patience and as long again as it has waited. So others start meanwhile, and every gang gets its reservation at
some time.
"""

from __future__ import annotations

from math import inf

from scheduling import reasons
from scheduling.reasons import Reason
from scheduling.world import Request, Snapshot


def refusal(snapshot: Snapshot, request: Request, at: float, hosts: int) -> Reason | None:
    """Why no hosts are kept for the request yet; None if they are.

    `at`: when it should have started there at the latest, infinite if nobody knows. `hosts`: how many it takes.
    """
    patience = snapshot.pool.patience
    if patience is None:
        return None
    now = snapshot.now
    waited = max(0.0, now - request.submitted_at)
    if waited >= patience if at == inf else at - now <= patience + waited:
        return None
    return reasons.unreserved(request.slots, hosts, at, waited, patience, now)
