"""The rules of a priority pool: order by (priority, position); a higher priority may stop a lower one."""

from __future__ import annotations

from scheduling.board import Run
from scheduling.fitting import saves
from scheduling.ranking import moved_past, standing
from scheduling.reasons import ReleaseCode
from scheduling.world import Request


def stop_order(run: Run) -> tuple[float, ...]:
    """Who is stopped first stands first: lowest priority, then what has saved before, then the newest.

    What is equal in all of these is stopped in the reverse of its standing.
    """
    return (-run.request.priority, not saves(run), -run.placement.started_at)


class PriorityRules:
    """Who may stop whom in a priority pool."""

    def __init__(self, preemption: bool) -> None:
        self._preemption = preemption

    def may_stop(self, request: Request, run: Run) -> bool:
        other = run.request
        if not (self._preemption and other.preemptible):
            return False
        if other.priority != request.priority:
            return other.priority > request.priority
        if standing(other) < standing(request):
            return False
        if run.placement.on_sufferance:
            return True
        return other.job_id != request.job_id and moved_past(request, other)

    def release_code(self, request: Request, run: Run) -> ReleaseCode:
        if run.placement.on_sufferance:
            return ReleaseCode.ON_SUFFERANCE
        if run.request.priority > request.priority:
            return ReleaseCode.HIGHER_PRIORITY
        return ReleaseCode.MOVED_AHEAD

    def rights(self, request: Request) -> str:
        """Unmoved requests have falling rights in rank order; a moved job may stop what others may not."""
        return "" if request.moved_at is None else request.job_id

    def borrows(self, request: Request) -> bool:
        return self._preemption and request.preemptible

    def reserves(self, request: Request) -> bool:
        return True

    def always_on_sufferance(self, request: Request) -> bool:
        return False
