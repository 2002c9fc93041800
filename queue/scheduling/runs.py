"""Running work, and the terms in which schedulers say who may stop it.

Every request stands somewhere, every run has a line, and a request may stop the runs whose line it stands before.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import inf
from operator import attrgetter
from typing import TYPE_CHECKING

from scheduling.reasons import Reason
from scheduling.world import Placement, PoolView, Request

if TYPE_CHECKING:
    from scheduling.group_shares import Room

#: where a request stands; what compares lower stands before
Standing = tuple[float | str, ...]

#: priority (1 first), then position; tasks of one job stand together, oldest first
standing: Callable[[Request], Standing] = attrgetter(
    "priority", "position", "job_id", "submitted_at", "task_id"
)

#: the lines of a run that nobody may stop, and of one that all may stop
NOBODY: Standing = ()
EVERYBODY: Standing = (inf,)


class HeldRun:
    """Work that holds slots. `grade`: runs of a higher grade are stopped before those of a lower one.

    `line`: who may stop it once it has run for the pool's minimum; it is `young` until `left_alone_until`.
    """

    __slots__ = (
        "grade", "held", "left_alone_until", "line", "parts", "placement", "request", "started", "stopping",
        "stopping_for", "unsaved", "young",
    )  # fmt: skip

    def __init__(
        self, request: Request, placement: Placement, rules: Rules, left_alone_until: float, now: float
    ) -> None:
        self.request = request
        self.left_alone_until = left_alone_until
        self.young = left_alone_until > now
        self.placement = placement
        self.grade = rules.grade(request)
        self.line = rules.line(request, placement)
        self.started = placement.started_at
        self.unsaved = placement.last_saved_at is None and not placement.asked_preempt
        self.stopping = placement.stopping
        self.stopping_for = placement.stopping_for
        self.parts: dict[int, int] = {}  # host index -> usable slots held there
        self.held = 0  # slots held anywhere, usable or not


def left_alone_until(
    pool: PoolView, rules: Rules, request: Request, placement: Placement, now: float
) -> float:
    """When others may stop this run at the earliest (epoch seconds). It counts from the start of its processes."""
    least = pool.min_runtime_of(request.priority)
    if not (least and rules.protects(request, placement)):
        return 0.0
    return (now if placement.running_since is None else placement.running_since) + least


def stop_order(run: HeldRun) -> tuple[float, bool, float]:
    """Who is stopped first stands first: the highest grade, then what has saved before, then the newest."""
    return (-run.grade, run.unsaved, -run.started)


class Rights:
    """Whom requests may stop. Of two requests with the same rights the later one may stop no more."""

    def line(self, run: HeldRun) -> Standing:
        return NOBODY if run.young else self.line_once_old(run)

    def line_once_old(self, run: HeldRun) -> Standing:
        """The line when it has run for the pool's minimum."""
        return run.line

    def may_stop(self, request: Request, run: HeldRun) -> bool:
        return standing(request) < self.line(run)

    def reaches(self, asker: Standing, grade: float) -> bool:
        """May one who stands there stop any run of this grade, or of a lower one? In doubt, yes."""
        return True

    def lending(self) -> Rights:
        """The rights on hosts that are kept for a gang which cannot start yet."""
        return self

    def reserving(self) -> Rights:
        """The rights by which it is judged where a gang can start soonest."""
        return self


class NoRights(Rights):
    """May stop nothing."""

    def line_once_old(self, run: HeldRun) -> Standing:
        return NOBODY


NO_RIGHTS = NoRights()


def yielding_last(requests: list[Request]) -> list[Request]:
    """In the same order, but last what yields to all: it would be stopped again for what comes behind it."""
    if not any(request.yields for request in requests):
        return requests
    return sorted(requests, key=attrgetter("yields"))


class Rules:
    """The rules of one pass. These place requests in order and stop nothing; each policy says what it does otherwise.

    `queue`: all requests of the pool, the first first; of equal runs the last here is stopped first.
    """

    #: what groups hold and may hold, where the pool gives them shares
    room: Room | None = None
    #: job id -> slots that it is entitled to
    shares: Mapping[str, int] = {}

    def __init__(self, queue: Sequence[Request]) -> None:
        self.queue = queue

    def waiting(self) -> list[Request]:
        """The requests to place, in this order."""
        return yielding_last([request for request in self.queue if request.running is None])

    def in_order(self) -> Sequence[Request]:
        """All requests as they are served."""
        return self.queue

    def grade(self, run: Request) -> float:
        """Runs of a higher grade are stopped first."""
        return 0

    def line(self, run: Request, placement: Placement) -> Standing:
        """Requests that stand before this line may stop the run."""
        return NOBODY

    def protects(self, request: Request, placement: Placement) -> bool:
        """Is this run left alone while it is young? Not if it is lent slots that are kept for others."""
        return not placement.on_sufferance

    def rights(self, request: Request) -> Rights:
        """Requests get the same object only if the later one may stop no more."""
        return NO_RIGHTS

    def borrows(self, request: Request) -> bool:
        """May it start on slots that are kept for a gang, to be stopped when the gang can start?"""
        return False

    def reserves(self, request: Request) -> bool:
        """May hosts be kept for it?"""
        return not request.yields

    def always_on_sufferance(self, request: Request) -> bool:
        """Does it start only as long as nothing else needs its slots?"""
        return request.yields

    def reword(self, waits: dict[str, Reason], held: Mapping[str, int]) -> None:
        """Put the reasons of slot work into the policy's terms. `held`: job id -> slots that it holds."""

    def why_not(self, request: Request, run: HeldRun) -> str:
        """Why a run that may be stopped for others is not stopped for this request, in a few words."""
        return "runs to its end"
