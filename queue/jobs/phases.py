"""Where something ACTIVE stands, read from its attempts: queued, starting or running (features.md 4.2).

One rule for the pages, the API's records and its filters. What has started reads RUNNING until the attempt is
over, while it is being stopped too; an attempt that is stopped before it started holds slots but starts nothing.
"""

from __future__ import annotations

from typing import Any

from django.db.models import Exists, Q

from jobs.models import Allocation
from jobs.states import AllocationState

QUEUED, STARTING, RUNNING = "QUEUED", "STARTING", "RUNNING"
_ACTIVE = "ACTIVE"  # of experiments, trials and commands


def beside(mine: Q) -> dict[str, Exists]:
    """Annotations for rows whose allocations are `mine` (with OuterRef), as `of` and `where` read them."""
    attempts = Allocation.objects.filter(mine).exclude(state=AllocationState.TERMINATED)
    begun = attempts.filter(started_at__isnull=False)
    coming = attempts.filter(started_at=None).exclude(state=AllocationState.TERMINATING)
    return {"running": Exists(begun), "starting": Exists(coming)}


def of(row: Any) -> str:
    """The state in words of one row with `beside`: an experiment is as far as its farthest trial."""
    if row.state != _ACTIVE:
        return str(row.state)
    return RUNNING if row.running else STARTING if row.starting else QUEUED


def where(*words: str) -> Q:
    """Which rows with `beside` have one of these states in words; ACTIVE itself means all three phases."""
    shares = {
        QUEUED: Q(running=False, starting=False),
        STARTING: Q(running=False, starting=True),
        RUNNING: Q(running=True),
    }
    found = Q()
    for word in words:
        found |= Q(state=_ACTIVE) & shares[word] if word in shares else Q(state=word)
    return found
