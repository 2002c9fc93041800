"""Running work, and the terms in which schedulers say who may stop it.

Every run has a line, and a request may stop the runs whose line it stands before.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import inf
from typing import Protocol

from scheduling.ranking import Standing, standing
from scheduling.reasons import ReleaseCode
from scheduling.world import Placement, Request

#: the lines of a run that nobody may stop, and of one that all may stop
NOBODY: Standing = ()
EVERYBODY: Standing = (inf,)


class Run:
    """Work that holds slots. `grade`: runs of a higher grade are stopped before those of a lower one."""

    __slots__ = (
        "grade", "held", "line", "parts", "placement", "request", "started", "stopping", "stopping_for", "unsaved"
    )  # fmt: skip

    def __init__(self, request: Request, placement: Placement, grade: int, line: Standing) -> None:
        self.request = request
        self.placement = placement
        self.grade = grade
        self.line = line
        self.started = placement.started_at
        self.unsaved = placement.last_saved_at is None and not placement.asked_preempt
        self.stopping = placement.stopping
        self.stopping_for = placement.stopping_for
        self.parts: dict[int, int] = {}  # host index -> usable slots held there
        self.held = 0  # slots held anywhere, usable or not


def stop_order(run: Run) -> tuple[float, bool, float]:
    """Who is stopped first stands first: the highest grade, then what has saved before, then the newest."""
    return (-run.grade, run.unsaved, -run.started)


class Rights:
    """Whom requests may stop. Of two requests with the same rights the later one may stop no more."""

    def line(self, run: Run) -> Standing:
        return run.line

    def may_stop(self, request: Request, run: Run) -> bool:
        return standing(request) < self.line(run)

    def reaches(self, asker: Standing, grade: float) -> bool:
        """May one who stands there stop any run of this grade, or of a lower one? In doubt, yes."""
        return True


class NoRights(Rights):
    """May stop nothing."""

    def line(self, run: Run) -> Standing:
        return NOBODY


NO_RIGHTS = NoRights()


class Rules(Protocol):
    """What differs between schedulers."""

    #: all requests of the pool, the first first; of equal runs the last here is stopped first
    queue: Sequence[Request]

    def grade(self, run: Request) -> int: ...

    def line(self, run: Request, placement: Placement) -> Standing: ...

    def rights(self, request: Request) -> Rights:
        """Requests get the same object only if the later one may stop no more."""

    def release_code(self, request: Request, run: Run) -> ReleaseCode: ...

    def borrows(self, request: Request) -> bool:
        """May it start on slots that are kept for a gang, to be stopped when the gang can start?"""

    def reserves(self, request: Request) -> bool:
        """May hosts be kept for it?"""

    def always_on_sufferance(self, request: Request) -> bool: ...
