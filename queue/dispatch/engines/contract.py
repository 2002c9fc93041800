"""The contract between the queue and what runs its attempts: five questions, the same for every kind of pool.

| question | method |
|---|---|
| where does it run, and why does it wait? | `place` |
| start it | `submit` |
| how is the run? | `poll` |
| end it | `cancel` |
| will a start whose answer was lost still happen? | `withdraw` |

The queue decides the order, and what an end means. It writes all states, through `jobs.transitions`. An engine writes
no state of a job: it answers, or raises `dispatch.ssh.remote.RemoteError`. An error settles nothing (law 3) unless the
machine itself said no (a `VerbFailed` that was not `delivered`).

`submit`, `poll`, `cancel` and `withdraw` are never called inside a database transaction, may be repeated, and may be
lost at any point. Each is about members: the parts of an attempt, one for each machine, with a run folder each.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

from hosts.models import Host, ResourcePool
from jobs.models import Member
from jobs.states import StopKind
from scheduling.forecast import Forecast
from scheduling.world import Plan, Snapshot

#: of the verb `launch`, from when all bytes are sent: a transfer that moves is not cut (dispatch.ssh.connections)
LAUNCH_TIMEOUT_SECONDS = 90.0
STATUS_TIMEOUT_SECONDS = 30.0

#: what docs/protocol.md says of the answer of a verb
Answer = dict[str, Any]


class Engine(Protocol):
    """What a kind of pool does with attempts."""

    def contact(self, host: Host) -> Host:
        """Return the host whose verbs reach the folders of the runs on this one."""
        ...

    def place(self, pool: ResourcePool, snapshot: Snapshot, plan: Plan) -> Plan:
        """Say where what the plan wants to run does run, and why the rest waits: the plan that the pass applies.

        Called once in each pass, inside its transaction, so it contacts nothing. An engine whose machines are the
        queue's own returns the plan as it is. One that shares them with others hands over what is next in `plan.order`
        and takes its starts out of the plan; it has its own words in `plan.waits` for what it has handed over.
        """
        ...

    def foresee(self, pool: ResourcePool, snapshot: Snapshot, plan: Plan) -> Plan:
        """Say what `place` would make of the plan, for previews and explanations: it changes nothing."""
        ...

    def expect(self, pool: ResourcePool, plan: Plan, now: float) -> Forecast | None:
        """Say when the work starts that waits by a plan of `place` or `foresee`, where others decide that.

        None: the queue foresees it, and knows who holds what.
        """
        ...

    def submit(self, member: Member, order: Mapping[str, Any], code: bytes) -> Answer:
        """Start the member, once, however often this is called: {"state": "launched" | "already" | "starting", …}.

        `order` is the request of the verb `launch`, and `code` the archive of the job's code. A `RemoteError` that was
        `delivered` leaves the start in doubt: the queue asks by `poll`, and submits again or withdraws. After a
        `FolderAway` it is submitted again for as long as the member is not over.
        """
        ...

    def poll(self, host: Host, question: Mapping[str, Any]) -> Answer:
        """Say how the runs on the host are: {"boot_id", "runs": {run key: {"state", "exit", …}}}.

        `question` is the request of the verb `status`. The host has nothing of a run that its answer lacks.
        """
        ...

    def cancel(self, host: Host, kind: StopKind, orders: Mapping[str, Mapping[str, Any]]) -> Answer:
        """Ask runs on the host to save and leave (PREEMPT) or to end (STOP): {"runs": {run key: {…}}}.

        `orders`: run key -> {"reason", and of a STOP "grace_seconds"}. It answers when they have been told, not when
        they have ended.
        """
        ...

    def withdraw(self, member: Member) -> Answer:
        """Make sure that no submission of the member starts anything from now on: {"state": "revoked"}.

        Or say that it is too late ("begun"), or that this cannot be told yet ("starting").
        """
        ...
