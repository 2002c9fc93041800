"""All that keeps one request waiting, not the first thing alone. Computed on request by the pass's own parts."""

from __future__ import annotations

from scheduling import reasons
from scheduling.board import slot_board
from scheduling.fitting import Shape
from scheduling.plan import decide, held_by_job, priority_rules
from scheduling.priority import PriorityRules
from scheduling.prospects import Prospects
from scheduling.ranking import jobs_ahead
from scheduling.reasons import NEVER, Reason
from scheduling.runs import Run
from scheduling.world import HostView, Plan, Request, Snapshot

#: hosts that are described one by one
MOST_HOSTS = 20


def explain(snapshot: Snapshot, task_id: str, plan: Plan | None = None) -> list[Reason]:
    """Every reason why this task does not run, the pass's own first; empty if it runs or starts now.

    `plan` is what `decide(snapshot)` answered, where the caller has it. An unknown task raises KeyError.
    """
    request = next((request for request in snapshot.requests if request.task_id == task_id), None)
    if request is None:
        raise KeyError(f"task {task_id} neither waits nor runs in pool {snapshot.pool.name}")
    plan = plan or decide(snapshot)
    first = plan.waits.get(task_id)
    if first is None:
        return []
    found = [first]
    if first.code not in NEVER:
        found += _off_or_outside(snapshot, request)
        found += _limits(snapshot, request, plan)
        found += _holders(snapshot, request)
        if snapshot.pool.scheduler == "priority":
            found.append(reasons.behind(jobs_ahead(snapshot.requests)[request.job_id]))
            if not snapshot.pool.preemption and request.slots:
                found.append(reasons.no_preemption(snapshot.pool.name))
    return list({reason.sentence: reason for reason in found}.values())


def _off_or_outside(snapshot: Snapshot, request: Request) -> list[Reason]:
    """Hosts and slots of the pool that it may not use now."""
    shape = Shape.of(request, snapshot.pool.allow_heterogeneous_fits)
    needs = Prospects(snapshot).needs_hosts_that_are_off(shape, request.slots)
    if needs is not None:
        return [needs]
    out = [(host.name, host.off) for host in snapshot.hosts if host.off is not None]
    out += [
        (host.name, f"held from outside ({_outsiders(host)})") for host in snapshot.hosts if _outsiders(host)
    ]
    out += [
        (host.name, "avoided by it") for host in snapshot.hosts if {host.id, host.name} & request.avoid_hosts
    ]
    return [reasons.not_usable([(name, why) for name, why in out if why is not None])] if out else []


def _outsiders(host: HostView) -> str:
    users = [slot.outside for slot in host.slots if slot.outside is not None]
    return f"{reasons.listed(dict.fromkeys(users))}, {reasons.slots(len(users))}" if users else ""


def _limits(snapshot: Snapshot, request: Request, plan: Plan) -> list[Reason]:
    held = held_by_job(snapshot).get(request.job_id, 0)
    found = []
    if request.max_slots is not None and held + request.slots > request.max_slots:
        found.append(reasons.max_slots(held, request.slots, request.max_slots))
    share = plan.shares.get(request.job_id)
    if share is not None and request.slots and held + request.slots > share:
        found.append(reasons.share(request.label, held, share))
    return found


def _holders(snapshot: Snapshot, request: Request) -> list[Reason]:
    """Host by host, those that lack least first: who holds it, and whether that is being stopped for it."""
    if request.slots == 0:
        return []
    rules = priority_rules(snapshot)
    board = slot_board(snapshot, rules)
    shape = Shape.of(request, snapshot.pool.allow_heterogeneous_fits)
    fits_one = any(host.cap >= shape.need for host in board.hosts)
    rows = []
    for host in board.hosts:
        need = shape.need if fits_one else host.cap
        if host.cap and host.cap >= need > host.free and not host.avoided(shape.avoid):
            runs = [
                (run.request.label, run.parts[host.index], _why_not(snapshot, request, run, rules))
                for run in (*host.stopping, *host.runs)
            ]
            rows.append(
                (need - host.free, host.index, reasons.host_held(host.view.name, host.free, need, runs))
            )
    return [row[2] for row in sorted(rows, key=lambda row: row[:2])[:MOST_HOSTS]]


def _why_not(snapshot: Snapshot, request: Request, run: Run, rules: PriorityRules) -> str:
    """Why this run is not stopped for the request, in a few words."""
    other = run.request
    if run.stopping:
        return "stopping"
    if not other.preemptible:
        return "may not be stopped"
    if snapshot.pool.scheduler == "fair_share":
        return "within its share" if other.job_id != request.job_id else "of the same job"
    if not snapshot.pool.preemption:
        return "runs to its end"
    if rules.rights(request).may_stop(request, run):
        return "may be stopped, which is not enough here"
    return (
        f"priority {other.priority}"
        if other.priority < request.priority
        else "stands before it or is its equal"
    )
