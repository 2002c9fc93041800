"""One host while a pass goes on."""

from __future__ import annotations

from dataclasses import dataclass, field

from scheduling.runs import HeldRun
from scheduling.world import HostView, Request


@dataclass(slots=True, eq=False)
class Host:
    """Slots are counted; `ids` names the free ones, lowest index last."""

    index: int
    view: HostView
    cap: int = 0  # what may be placed here when it is empty
    free: int = 0
    coming: int = 0  # held by runs that are stopping
    claimed: int = 0  # spoken for by requests of higher standing that wait
    pledged: int = 0  # of these, by requests that start as soon as the stopping runs have ended
    spoken: dict[str, int] = field(default_factory=dict)  # task id -> free slots among those it is pledged
    strangers: int = 0  # held slots on which nothing new may be placed
    cleaned: list[str] = field(default_factory=list)  # after whom slots are cleaned up
    ids: list[int] = field(default_factory=list)
    runs: list[HeldRun] = field(default_factory=list)  # those that go on; who is stopped first stands first
    stopping: list[HeldRun] = field(default_factory=list)
    by: list[Request] = field(default_factory=list)  # who laid the claims
    changes: int = 0  # how often any of these numbers has changed

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
