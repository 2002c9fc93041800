"""What is known of a task's ranks, for expressions that choose among them."""

from __future__ import annotations

from jobs.models import Allocation
from jobs.states import Reason
from logs.models import RankSeen
from logs.rank_expression import Known

#: A rank is silent when another wrote a line this much later than its own last one.
SILENT_SECONDS = 10.0


def known(task_id: str) -> list[Known]:
    """All ranks (>= 0) that have written, by number; a rank that moved stands on the host of its last line.

    Whether one is silent is told by the lines' own times alone, so it stays true after the end: these stopped first.
    """
    last: dict[int, tuple[float, str]] = {}
    rows = RankSeen.objects.filter(task_id=task_id, rank__gte=0).values_list("rank", "last_time", "host")
    for rank, time, host in rows:
        last[rank] = max((time, host), last.get(rank, (time, host)))
    newest = max((time for time, _ in last.values()), default=0.0)
    failed = _failed_first(task_id)
    return [
        Known(rank, host, silent=newest - time >= SILENT_SECONDS, failed=rank in failed)
        for rank, (time, host) in sorted(last.items())
    ]


def _failed_first(task_id: str) -> set[int]:
    """The ranks that were the first to fail in one of the attempts."""
    ended = Allocation.objects.filter(task_id=task_id, exit_reason=Reason.RANK_FAILED)
    ranks = (detail.get("rank") for detail in ended.values_list("exit_detail", flat=True))
    return {rank for rank in ranks if rank is not None}
