"""What is known of a task's ranks, for expressions that choose among them."""

from __future__ import annotations

from jobs.models import Allocation
from jobs.states import Reason
from logs.rank_expression import Known
from logs.rank_status import ranks_of

#: A rank is silent when another wrote a line this much later than its own last one.
SILENT_SECONDS = 10.0


def known(task_id: str) -> list[Known]:
    """All ranks (>= 0) that have written or run, by number; one that moved stands where it runs or wrote last.

    Whether one is silent is told by the lines' own times alone, so it stays true after the end: these stopped first.
    """
    ranks = [each for each in ranks_of(task_id) if each.rank >= 0]
    newest = max((each.last_time or 0.0 for each in ranks), default=0.0)
    failed = _failed_first(task_id)
    return [
        Known(
            each.rank,
            each.host,
            marked=each.mark is not None,
            silent=newest - (each.last_time or 0.0) >= SILENT_SECONDS,
            failed=each.rank in failed,
        )
        for each in ranks
    ]


def _failed_first(task_id: str) -> set[int]:
    """The ranks that were the first to fail in one of the attempts."""
    ended = Allocation.objects.filter(task_id=task_id, exit_reason=Reason.RANK_FAILED)
    ranks = (detail.get("rank") for detail in ended.values_list("exit_detail", flat=True))
    return {rank for rank in ranks if rank is not None}
