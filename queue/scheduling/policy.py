"""What a scheduling policy states. Everything outside of the planner that depends on the policy asks it here."""

from __future__ import annotations

from abc import ABC, abstractmethod
from math import inf

from scheduling.prospects import Prospects
from scheduling.runs import Rules
from scheduling.world import Request, Snapshot

#: where something stands in the order of turns of a forecast
Key = tuple[float, ...]


class Policy(ABC):
    """One way to schedule a pool. It keeps no state: the same object serves all pools."""

    #: what is stored with a pool, and what REST, the command line and configs say
    name: str
    #: the name for people, capitalized
    label: str
    #: the first line of its description, for the choice between policies
    summary: str
    #: how its queue is read, shown above the table
    hint: str
    #: the `schedulerType` of Determined's REST dialect
    dialect: str
    #: what users may set of a job to be served earlier: some of "priority", "position", "weight"
    knobs: tuple[str, ...] = ()
    #: columns of a job that order the queue; empty if only the last pass knows the order
    order: tuple[str, ...] = ()
    #: whether jobs are entitled to shares of the pool
    has_shares = False
    #: whether requests may stop runs; None leaves it to the pool's switch `preemption`
    preempts: bool | None = None

    def stops_runs(self, preemption: bool) -> bool:
        """Whether requests may stop runs in a pool with this switch."""
        return preemption if self.preempts is None else self.preempts

    @abstractmethod
    def rules(self, snapshot: Snapshot, prospects: Prospects) -> Rules:
        """The rules by which a pass places slot work."""

    def rules_without_slots(self, rules: Rules) -> Rules:
        """The rules by which the same pass places work that needs no slots."""
        return rules

    def turn(self, request: Request, held: float, firm: bool, place: int) -> Key:
        """When a request's turn comes in a forecast. `held`: slots that its job has before it.

        `firm`: it runs and is not stopped for its equals. `place`: its place in the queue.
        """
        return (place,)

    def turn_of_next(self, request: Request) -> Key:
        """When the turn of a similar request would come if it were submitted later."""
        return (inf,)
