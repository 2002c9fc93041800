"""The engine of a Slurm pool: what is next in our order waits in Slurm, and what Slurm has given nodes runs there.

Its hosts are the nodes of the cluster. Nobody dials them: their runs are reached by verbs on the login node, in the
folder that it shares with them (`contact`), or else by steps of their jobs (dispatch.ssh.slurm_node).
docs/decisions/0022 says why a job in Slurm is a claim and no attempt yet.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from django.db.models import Min

from dispatch.engines import slurm_sections
from dispatch.engines.contract import LAUNCH_TIMEOUT_SECONDS, STATUS_TIMEOUT_SECONDS, Answer
from dispatch.ssh import remote, slurm_node
from hosts import login_accounts, slurm_nodes
from hosts.models import Host, ResourcePool
from hosts.slurm import reasons as slurm_reasons
from hosts.slurm.settings import SlurmSettings
from jobs import feeding
from jobs.fed_jobs import FedJob
from jobs.models import Member
from jobs.states import StopKind
from scheduling import feeding as order
from scheduling.forecast import Forecast
from scheduling.reasons import Reason, WaitCode, lacks_account
from scheduling.world import Plan, Snapshot

#: what `launch` answers while the folder is in the way; and of these, where the run may lie there all the same
_OF_THE_FOLDER, _IN_DOUBT = {"not_mounted", "disk", "away"}, {"away"}
_HANDED_NEXT = Reason(WaitCode.POSITION, "is handed to Slurm next")


class Slurm:
    """`dispatch.engines.contract.Engine` for a cluster that others use too."""

    def contact(self, host: Host) -> Host:
        return host if host.transport == Host.Transport.LOGIN else slurm_nodes.login_of(host.pool)

    def place(self, pool: ResourcePool, snapshot: Snapshot, plan: Plan) -> Plan:
        """Feed: hand over the first in our order, take back what is not among them any more.

        Nothing is stopped for another: Slurm, not the queue, would give away what it held.
        """
        settings = SlurmSettings.of(pool.slurm)
        chosen = order.next_ones(snapshot, plan, settings.max_fed, feeding.refused_tasks(pool.pk))
        why = _closed(pool) if chosen else None
        slots = {request.task_id: request.slots for request in chosen}
        per_node = max((len(host.slots) for host in snapshot.hosts), default=1)
        fed = feeding.keep(
            pool,
            list(slots),
            0 if why else settings.max_fed,
            partial(_nodes, slots, per_node),
            partial(_why_back, plan),
        )
        closed = {task_id: why for task_id in slots if why and task_id not in fed}
        return self._seen(plan, fed, settings.max_fed, closed)

    def foresee(self, pool: ResourcePool, snapshot: Snapshot, plan: Plan) -> Plan:
        most = SlurmSettings.of(pool.slurm).max_fed
        fed = {row.task_id: row for row in feeding.open_jobs(pool.pk).filter(allocation=None)}
        chosen = order.next_ones(snapshot, plan, most, feeding.refused_tasks(pool.pk))
        wanted = {request.task_id for request in chosen}
        back = [row.task_id for row in fed.values() if row.task_id not in wanted and row.back_at is None]
        new = wanted - fed.keys()
        why_not = (_closed(pool) if new else None) or _HANDED_NEXT
        other = {task: _going_back(plan, task) for task in back} | dict.fromkeys(new, why_not)
        return self._seen(plan, fed, most, other)

    def expect(self, pool: ResourcePool, plan: Plan, now: float) -> Forecast:
        """What is in Slurm starts as squeue says; of the rest, only when it may be handed over is known."""
        states = {
            task: str(wait.data["slurm_state"])
            for task, wait in plan.waits.items()
            if wait.data.get("slurm_job")
        }
        most = SlurmSettings.of(pool.slurm).max_fed
        return order.expected(states, *feeding.expected(pool.pk), most, now)

    def _seen(self, plan: Plan, fed: Mapping[str, FedJob], most: int, other: Mapping[str, Reason]) -> Plan:
        """The plan with the reasons of what was handed over; `other`: reasons in their place."""
        waiting = {*plan.waits, *(start.task_id for start in plan.starts)}
        handed = {task_id: _why(row) for task_id, row in fed.items() if task_id in waiting}
        return replace(
            plan,
            starts=(),
            releases=tuple(one for one in plan.releases if not one.for_task_id),
            reservations={},
            waits=order.waits(plan, {**handed, **other}, most),
        )

    def submit(self, member: Member, order: Mapping[str, Any], code: bytes) -> Answer:
        """Lay the run's folder where its job on the node waits for it, which then starts it."""
        job, login = _job_of(member.allocation_id), self.contact(member.host)
        shared = is_shared(member.host)
        request = {**order, "ticket": {"job_id": job.job_id, "own_folder": not shared}}
        if not shared:
            return slurm_node.verb(
                login, job.job_id, [member.host], "launch", request, code, LAUNCH_TIMEOUT_SECONDS
            )
        try:
            return remote.verb(login, "launch", request, body=code, timeout_seconds=LAUNCH_TIMEOUT_SECONDS)
        except remote.VerbFailed as error:
            if error.code in _OF_THE_FOLDER:
                in_doubt = error.code in _IN_DOUBT
                raise remote.FolderAway(error.code, str(error), delivered=in_doubt) from error
            raise

    def poll(self, host: Host, question: Mapping[str, Any]) -> Answer:
        """By the folders of the runs: a run that is prepared is one that was launched. Slurm is asked for all at once,
        by `dispatch.runs.clusters`.
        """
        if is_shared(host):
            request = {**question, "elsewhere": question["runs"]}
            answer = remote.verb(
                self.contact(host), "status", request, timeout_seconds=STATUS_TIMEOUT_SECONDS
            )
        else:
            answer = slurm_node.of_runs(self.contact(host), "status", dict.fromkeys(question["runs"]))
        for run in answer["runs"].values():
            if run.get("state") == "prepared":
                run["state"] = "running"
        return {**answer, "boot_id": ""}

    def cancel(self, host: Host, kind: StopKind, orders: Mapping[str, Mapping[str, Any]]) -> Answer:
        """Left in the folders of the runs, for what looks after them on their nodes."""
        verb = "stop" if kind == StopKind.STOP else "preempt"
        if not is_shared(host):
            return slurm_node.of_runs(self.contact(host), verb, orders)
        return remote.verb(self.contact(host), verb, {"runs": dict(orders), "elsewhere": True})

    def withdraw(self, member: Member) -> Answer:
        """A mark beside the run folder, which the job on the node looks for before it starts anything."""
        login, shared = self.contact(member.host), is_shared(member.host)
        request = {"run_key": member.run_key, "unix_user": member.allocation.account, "elsewhere": shared}
        if not shared:
            job = _job_of(member.allocation_id)
            return slurm_node.verb(login, job.job_id, [member.host], "revoke", request)
        return remote.verb(login, "revoke", request)


def is_shared(host: Host) -> bool:
    """Whether the folders of the runs on a node, or on those of a login node, are seen by the login node."""
    return SlurmSettings.of(host.pool.slurm).folder_is_shared


def _job_of(attempt: str) -> FedJob:
    return FedJob.objects.get(allocation=attempt)


def of_removal(host: Host) -> dict[str, Any]:
    """What `remove` is told besides, of a node: since when jobs are open, whose scripts name a bundle."""
    if host.transport != Host.Transport.SLURM:
        return {}
    oldest = feeding.open_jobs(host.pool_id).aggregate(at=Min("made_at"))["at"]
    return {"elsewhere": True, "jobs_since": oldest.timestamp() if oldest else None}


def _nodes(slots: Mapping[str, int], per_node: int, task_ids: Sequence[str]) -> dict[str, int]:
    """How many nodes these tasks need: as their configs say, or as the pool's nodes are."""
    own = slurm_sections.of_tasks(task_ids)
    sizes = {task: own[task].slots_per_node or per_node if task in own else per_node for task in task_ids}
    return {task: order.nodes_of(slots[task], min(per_node, size)) for task, size in sizes.items()}


def _why_back(plan: Plan, task_id: str) -> str:
    """Why a task is taken back from Slurm: what keeps it here, or the order."""
    wait = plan.waits.get(task_id)
    return wait.sentence if wait is not None and wait.code not in order.FOR_SLOTS else feeding.OTHERS_AHEAD


def _going_back(plan: Plan, task_id: str) -> Reason:
    return Reason(WaitCode.POSITION, f"is taken back from Slurm: {_why_back(plan, task_id)}")


def _closed(pool: ResourcePool) -> Reason | None:
    """Why nothing may be handed over now."""
    try:
        login = slurm_nodes.login_of(pool)
    except Host.DoesNotExist:
        return Reason(WaitCode.NO_HOSTS, f"pool {pool.name} has no login node")
    rules = SlurmSettings.of(pool.slurm)
    if not (rules.folder_is_shared or rules.folder.startswith("/")):
        return Reason(
            WaitCode.NO_HOSTS, "nodes with folders of their own need the setting folder, an absolute path"
        )
    # with accounts of their own, a pass keeps back who has none
    if login_accounts.is_shared(pool) and not login_accounts.may_run(pool, None, login.facts):
        return lacks_account([login.name], pool.name, shared=login_accounts.is_shared(pool))
    if not login.enabled or login.draining or login.admission != Host.Admission.READY:
        return Reason(WaitCode.HOSTS_OFF, f"the login node {login.name} is {login.state}")
    return None


def _why(row: FedJob) -> Reason:
    """Why a request waits that was handed over."""
    data: dict[str, object] = {"slurm_job": row.job_id, "slurm_state": row.state, "slurm_reason": row.reason}
    if row.back_at is not None:
        text = f"is being taken back from Slurm: {row.back_why.rstrip('.')}"
    elif row.error and not row.job_id:
        text = f"waits to be handed to Slurm again: {row.error.rstrip('.')}"
    elif not row.job_id:
        text = "is being handed to Slurm"
    elif row.nodes_at is not None:
        text = f"has nodes in Slurm as job {row.job_id}, and waits until what ran on them is settled here"
    else:
        why = slurm_reasons.why(row.reason)
        said = " ".join(filter(None, [why.sentence, why.to_do])).rstrip(".")
        said = said if said.startswith("Slurm") else f"{said[:1].lower()}{said[1:]}"
        text = f"waits in Slurm as job {row.job_id}: {said}"
    return Reason(WaitCode.POSITION, text, data)
