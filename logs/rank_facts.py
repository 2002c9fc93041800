"""What is known of a task's ranks, for expressions that choose among them."""

from __future__ import annotations

from jobs.models import Allocation
from jobs.states import Reason
from logs import pulse
from logs.models import RankSeen
from logs.rank_expression import Known

#: A rank is silent when another wrote a line this much later than its own last one.
SILENT_SECONDS = 10.0


def known(task_id: str) -> list[Known]:
    """All ranks (>= 0) that have written or run, by number; one that moved stands where it runs or wrote last.

    Whether one is silent is told by the lines' own times alone, so it stays true after the end: these stopped first.
    """
    last: dict[int, tuple[float, str]] = {}
    rows = RankSeen.objects.filter(task_id=task_id, rank__gte=0).values_list("rank", "last_time", "host")
    for rank, time, host in rows:
        last[rank] = max((time, host), last.get(rank, (time, host)))
    newest = max((time for time, _ in last.values()), default=0.0)
    running = {each.rank: each for each in pulse.of_task(task_id)}
    failed = _failed_first(task_id)
    return [
        Known(
            rank,
            running[rank].host if rank in running else last[rank][1],
            marked=rank in running and running[rank].mark is not None,
            silent=newest - last.get(rank, (0.0, ""))[0] >= SILENT_SECONDS,
            failed=rank in failed,
        )
        for rank in sorted(last.keys() | running.keys())
    ]


def _failed_first(task_id: str) -> set[int]:
    """The ranks that were the first to fail in one of the attempts."""
    ended = Allocation.objects.filter(task_id=task_id, exit_reason=Reason.RANK_FAILED)
    ranks = (detail.get("rank") for detail in ended.values_list("exit_detail", flat=True))
    return {rank for rank in ranks if rank is not None}
