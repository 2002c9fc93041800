"""All that keeps one request waiting, not the first thing alone. Computed on request by the pass's own parts."""

from __future__ import annotations

from collections import Counter
from itertools import takewhile

from scheduling import policies, reasons
from scheduling.board import slot_board
from scheduling.fitting import Shape
from scheduling.group_shares import Room
from scheduling.plan import decide, held_by_job
from scheduling.prospects import Prospects
from scheduling.reasons import NEVER, Reason
from scheduling.runs import HeldRun, Rules, standing
from scheduling.windows import NOWHERE
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
    never = _nevers(snapshot, request)
    if first.code in NEVER or never:
        found = [first, *never]
    else:
        found = [first, *_not_usable(snapshot, request), *_limits(snapshot, request, plan)]
        found += [reasons.only_hosts(sorted(request.only_hosts))] if request.only_hosts else []
        found += _gang(snapshot, request)
        found += _holders(snapshot, request, plan)
        found += _policy(snapshot, request, plan)
    return list({reason.sentence: reason for reason in found}.values())


def _policy(snapshot: Snapshot, request: Request, plan: Plan) -> list[Reason]:
    """What follows from the order of the queue, and from the switch that the policy reads."""
    policy = policies.of(snapshot.pool.scheduler)
    found = []
    if policy.order and not snapshot.pool.shares:
        jobs = {one.task_id: one.job_id for one in snapshot.requests}
        ahead = list(dict.fromkeys(jobs[task_id] for task_id in plan.order))
        found.append(reasons.behind(ahead.index(request.job_id)))
    if policy.preempts is None and not snapshot.pool.preemption and request.slots:
        found.append(reasons.no_preemption(snapshot.pool.name))
    return found


def _nevers(snapshot: Snapshot, request: Request) -> list[Reason]:
    """What no waiting will cure, all of it."""
    prospects = Prospects(snapshot).of(request)
    shape = Shape.of(request, snapshot.pool.allow_heterogeneous_fits)
    found = [
        prospects.lacks_account(request)
        or prospects.never(shape, request.slots)
        or prospects.never_beside_spares(request),
        prospects.too_long(request),
    ]
    if request.max_slots is not None and request.slots > request.max_slots:
        found.append(reasons.over_max_slots(request.slots, request.max_slots))
    return [reason for reason in found if reason is not None and reason.code in NEVER]


def _not_usable(snapshot: Snapshot, request: Request) -> list[Reason]:
    """Hosts and slots of the pool that it may not use now."""
    shape = Shape.of(request, snapshot.pool.allow_heterogeneous_fits)
    prospects = Prospects(snapshot)
    needs = prospects.of(request).needs_hosts_that_are_off(shape, request.slots)
    only = request.only_hosts
    allowed = [host for host in snapshot.hosts if not only or host.name in only]
    notes = {host.id: prospects.notes_of_host(request, host.id) for host in allowed}
    out = [(host.name, why) for host in allowed if (why := _why_out(host, request, notes[host.id]))]
    for name in sorted(only - {host.name for host in allowed}):
        out.append((name, "not ready" if name in snapshot.pool.unready else "not in the pool any more"))
    found = [needs] if needs is not None else []
    if out:
        found.append(reasons.not_usable(out))
    return found


def _why_out(host: HostView, request: Request, closed: list[str]) -> str:
    """Why it uses this host not at all, or not all of it; empty if it may. `closed`: why the host is closed to it."""
    notes = [*closed]
    if host.name in request.failed_hosts:
        notes.append("it could not be started there")
    elif host.needs_account and not request.has_account:
        notes.append("only jobs of users with a linked account run there")
    elif {host.id, host.name} & request.avoid_hosts:
        notes.append("it avoids this host")
    if host.off is not None:
        notes.append(host.off)
    elif request.slots:
        users = [slot.outside for slot in host.slots if slot.outside is not None]
        if users:
            notes.append(
                f"{reasons.slots(len(users))} in use from outside the queue by {reasons.listed(dict.fromkeys(users))}"
            )
        after = [slot.cleaning for slot in host.slots if slot.cleaning is not None]
        notes += [reasons.cleaned(after)] if after else []
        disabled = sum(not slot.enabled for slot in host.slots if slot.outside is None)
        draining = sum(slot.enabled and slot.draining for slot in host.slots if slot.outside is None)
        notes += [f"{reasons.slots(disabled)} disabled"] if disabled else []
        notes += [f"{reasons.slots(draining)} draining"] if draining else []
    return "; ".join(notes)


def _limits(snapshot: Snapshot, request: Request, plan: Plan) -> list[Reason]:
    """What its job, and all work like it, may hold."""
    held = held_by_job(snapshot).get(request.job_id, 0)
    found = []
    if request.at_once is not None:
        runs = [each for each in snapshot.requests if each.running and each.job_id == request.job_id]
        if len(runs) >= request.at_once[0]:
            found.append(reasons.at_once(*request.at_once))
    elif request.slots and request.max_slots is not None and held + request.slots > request.max_slots:
        found.append(reasons.max_slots(held, request.slots, request.max_slots))
    share = plan.shares.get(request.job_id)
    if share is not None and request.slots and held + request.slots > share:
        found.append(reasons.share(request.label, held, share))
    if snapshot.pool.shares and request.slots:
        found += Room(snapshot, Prospects(snapshot).spares).in_words(request)
    most = snapshot.pool.unpreemptible_slots
    if most is not None and request.slots and not request.preemptible:
        firm = sum(one.slots for one in snapshot.requests if one.running is not None and not one.preemptible)
        if firm + request.slots > most:
            found.append(reasons.unpreemptible(firm, request.slots, most))
    return found


def _gang(snapshot: Snapshot, request: Request) -> list[Reason]:
    """What a request meets that is larger than any host."""
    spares = Prospects(snapshot).spares
    avoided = request.avoid_hosts | (spares.closed(request) if spares else NOWHERE)
    hosts = [host for host in snapshot.hosts if host.off is None and not {host.id, host.name} & avoided]
    sizes = Counter(sum(slot.usable for slot in host.slots) for host in hosts)
    largest = max(sizes, default=0)
    if request.single_host or not largest or request.slots <= largest:
        return []
    free = Counter(
        len(usable)
        for host in hosts
        if (usable := [slot for slot in host.slots if slot.usable])
        and all(slot.held_by is None for slot in host.slots)
    )
    whole = [
        (request.slots // size, size, free[size], sizes[size])
        for size in sorted(sizes, reverse=True)
        if size and request.slots % size == 0
    ]
    found = [reasons.whole_hosts(request.slots, whole)] if whole else []
    names = {host.id: host.name for host in hosts}
    pairs = sorted(
        sorted(names[one] for one in pair) for pair in snapshot.pool.bad_pairs if pair <= names.keys()
    )
    if pairs:
        found.append(reasons.bad_pairs([(first, second) for first, second in pairs]))
    return found


def _reserved(snapshot: Snapshot, request: Request, plan: Plan) -> dict[str, str]:
    """Host id -> what it is reserved for, ahead of this request."""
    by_priority = "priority" in policies.of(snapshot.pool.scheduler).knobs
    requests = {one.task_id: one for one in snapshot.requests}
    found = {}
    for task_id in takewhile(lambda task_id: task_id != request.task_id, plan.waits):
        other = requests[task_id]
        name = other.called_to(request.job_id)
        shown = f"{name} (priority {other.priority})" if by_priority else name
        found.update(dict.fromkeys(plan.reservations.get(task_id, ()), shown))
    return found


def _holders(snapshot: Snapshot, request: Request, plan: Plan) -> list[Reason]:
    """Host by host, those that lack least first: which job it is reserved for, who holds it, why that stays."""
    if request.slots == 0:
        return []
    policy = policies.of(snapshot.pool.scheduler)
    rules = policy.rules(snapshot, Prospects(snapshot))
    board = slot_board(snapshot, rules)
    closed = Prospects(snapshot).closed(request)
    shape = Shape.of(request, snapshot.pool.allow_heterogeneous_fits, closed)
    fits_one = any(host.cap >= shape.need and not host.avoided(shape.avoid) for host in board.hosts)
    reserved = _reserved(snapshot, request, plan)
    released = {release.allocation_id for release in plan.releases}
    rows = []
    for host in board.hosts:
        need, kept = shape.need if fits_one else host.cap, reserved.get(host.view.id)
        short = need > host.free or kept is not None
        if host.cap and host.cap >= need and short and not host.avoided(shape.avoid):
            runs = [
                (
                    run.request.called_to(request.job_id),
                    run.parts[host.index],
                    "already stopping"
                    if run.stopping or run.placement.allocation_id in released
                    else _why_not(snapshot, request, run, rules, kept is not None),
                )
                for run in (*host.stopping, *host.runs)
            ]
            rows.append(
                (need - host.free, host.index, reasons.host_held(host.view.name, host.free, need, runs, kept))
            )
    rows.sort(key=lambda row: row[:2])
    more = [reasons.more_hosts(len(rows) - MOST_HOSTS)] if len(rows) > MOST_HOSTS else []
    return [row[2] for row in rows[:MOST_HOSTS]] + more


def _why_not(snapshot: Snapshot, request: Request, run: HeldRun, rules: Rules, kept: bool) -> str:
    """Why this run is not stopped for the request, in a few words. `kept`: its host is reserved for others."""
    if not run.request.preemptible:
        return "not preemptible"
    if not (
        snapshot.pool.shares or policies.of(snapshot.pool.scheduler).stops_runs(snapshot.pool.preemption)
    ):
        return "runs until it ends"
    rights = rules.rights(request)
    may_stop = rights.may_stop(request, run)
    if run.young and not may_stop and standing(request) < rights.line_once_old(run):
        return reasons.young(run.left_alone_until, snapshot.now)
    if kept and may_stop:
        return "preemptible, but the host is reserved"
    return rules.why_not(request, run)
