"""The engine of hosts that the queue has to itself: work runs where the plan says; verbs over SSH start it there."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dispatch.engines.contract import LAUNCH_TIMEOUT_SECONDS, STATUS_TIMEOUT_SECONDS, Answer
from dispatch.ssh import remote
from hosts.models import Host, ResourcePool
from jobs.models import Member
from jobs.states import StopKind
from scheduling.world import Plan, Snapshot


class SshHosts:
    """`dispatch.engines.contract.Engine` for hosts reached one by one, and for the host named local."""

    def contact(self, host: Host) -> Host:
        return host

    def place(self, pool: ResourcePool, snapshot: Snapshot, plan: Plan) -> Plan:
        """All that runs on these hosts is the queue's: the planner has seen what is free, and says where."""
        return plan

    def foresee(self, pool: ResourcePool, snapshot: Snapshot, plan: Plan) -> Plan:
        return plan

    def expect(self, pool: ResourcePool, plan: Plan, now: float) -> None:
        return None

    def submit(self, member: Member, order: Mapping[str, Any], code: bytes) -> Answer:
        """The run folder on the host decides which submission was first."""
        return remote.verb(
            member.host, "launch", dict(order), body=code, timeout_seconds=LAUNCH_TIMEOUT_SECONDS
        )

    def poll(self, host: Host, question: Mapping[str, Any]) -> Answer:
        """One question for all runs of the host."""
        return remote.verb(host, "status", dict(question), timeout_seconds=STATUS_TIMEOUT_SECONDS)

    def cancel(self, host: Host, kind: StopKind, orders: Mapping[str, Mapping[str, Any]]) -> Answer:
        """The runs hear of it over HTTP too, often sooner."""
        return remote.verb(host, "stop" if kind == StopKind.STOP else "preempt", {"runs": dict(orders)})

    def withdraw(self, member: Member) -> Answer:
        """A mark beside the run folder, which every launch looks for before it begins."""
        request = {"run_key": member.run_key, "unix_user": member.allocation.account}
        return remote.verb(member.host, "revoke", request)
