"""One host while a pass goes on."""

from __future__ import annotations

from scheduling.runs import HeldRun
from scheduling.world import HostView, Request


class Host:
    """Slots are counted; `ids` names the free ones, lowest index last."""

    __slots__ = (
        "by",
        "cap",
        "changes",
        "claimed",
        "cleaned",
        "coming",
        "free",
        "ids",
        "index",
        "pledged",
        "runs",
        "spoken",
        "stopping",
        "strangers",
        "view",
    )

    def __init__(self, index: int, view: HostView) -> None:
        self.index = index
        self.view = view
        self.cap = 0  # what may be placed here when it is empty
        self.free = 0
        self.coming = 0  # held by runs that are stopping
        self.claimed = 0  # spoken for by requests of higher standing that wait
        self.pledged = 0  # of these, by requests that start as soon as the stopping runs have ended
        self.spoken: dict[str, int] = {}  # task id -> free slots among those it is pledged
        self.strangers = 0  # held slots on which nothing new may be placed
        self.cleaned: list[str] = []  # after whom slots are cleaned up
        self.ids: list[int] = []
        self.runs: list[HeldRun] = []  # those that go on; who is stopped first stands first
        self.stopping: list[HeldRun] = []
        self.by: list[Request] = []  # who laid the claims
        self.changes = 0  # how often any of these numbers has changed

    @property
    def soon(self) -> int:
        """Unclaimed slots once the runs that are stopping have ended."""
        return self.free + self.coming - self.claimed

    @property
    def loose(self) -> int:
        """Free slots that no request is pledged beside those which are being freed for it."""
        return self.free - sum(self.spoken.values()) if self.spoken else self.free

    def avoided(self, avoid: frozenset[str]) -> bool:
        return bool(avoid) and (self.view.id in avoid or self.view.name in avoid)
