"""What is handed next to a scheduler that others use too: the first in our order that wait for slots alone. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping

from scheduling.forecast import Forecast
from scheduling.plan import held_by_job
from scheduling.reasons import Reason, WaitCode, clock
from scheduling.world import Plan, Request, Snapshot

#: what another scheduler answers itself: whether slots are free, and whose turn it is there
FOR_SLOTS = frozenset(
    {
        WaitCode.HOSTS_OFF, WaitCode.COMING_FREE, WaitCode.KEPT_FOR, WaitCode.UNRESERVED, WaitCode.HELD,
        WaitCode.NO_ROOM, WaitCode.POSITION, WaitCode.NO_PREEMPTION, WaitCode.BAD_PAIR,
    }
)  # fmt: skip


def next_ones(snapshot: Snapshot, plan: Plan, most: int, refused: Collection[str] = ()) -> list[Request]:
    """The first `most` requests in the order of the plan that may start as soon as there are slots.

    Whatever else keeps a request waiting (its limits, its dependencies, a window, its share) keeps it here. What a job
    has in hand there counts towards its `max_slots`. Tasks that are `refused` there come in addition: tried again, but
    in nobody's place.
    """
    waiting = {request.task_id: request for request in snapshot.requests if request.running is None}
    starts = {start.task_id for start in plan.starts}
    held = Counter(held_by_job(snapshot))
    found: list[Request] = []
    left = most
    for task_id in plan.order:
        request = waiting.get(task_id)
        if request is None or (left == 0 and task_id not in refused):
            continue
        wait = plan.waits.get(task_id)
        if task_id not in starts and (wait is None or wait.code not in FOR_SLOTS):
            continue
        if request.max_slots is not None and held[request.job_id] + request.slots > request.max_slots:
            continue
        held[request.job_id] += request.slots
        left -= task_id not in refused
        found.append(request)
    return found


def waits(plan: Plan, fed: Mapping[str, Reason], most: int) -> dict[str, Reason]:
    """Why each request waits, in a pool where the other scheduler decides about slots. `fed`: what it has in hand."""
    later = Reason(
        WaitCode.POSITION,
        f"waits to be handed to Slurm, where at most {most} of this pool wait at once",
        {"fed": len(fed), "max_fed": most},
    )
    starts = dict.fromkeys([start.task_id for start in plan.starts], later)
    waits = {task: later if wait.code in FOR_SLOTS else wait for task, wait in plan.waits.items()}
    return {**waits, **starts, **fed}


def nothing_since(by: str, at: float, now: float) -> str:
    """Why nobody knows when a request starts of which the other scheduler has told nothing for a while."""
    return f"{by} has reported nothing since {clock(at, now)}"


def expected(
    states: Mapping[str, str],
    said: Mapping[str, tuple[float, float]],
    silent: Mapping[str, float],
    most: int,
    now: float,
) -> Forecast:
    """When what waits starts. `states`: in Slurm, by task, at most `most` of which wait there. `said`: when it expects
    to start a task, and when it said so; `silent`: since when it has told nothing of a task; in epoch seconds.
    """
    known = {task: said[task] for task in states if task in said}
    spans = {task: (start, start) for task, (start, _) in known.items()}
    unknown = {
        task: "its nodes are not free here yet" if state == "RUNNING" else "Slurm names no time for it"
        for task, state in states.items()
        if task not in known
    }
    unknown |= {task: nothing_since("Slurm", silent[task], now) for task in states if task in silent}
    rest = "Slurm decides when it has nodes for it"
    if len(states) >= most:
        first = min((start for start, _ in spans.values()), default=None)
        when = "" if first is None else f", which Slurm expects at {clock(first, now)}"
        rest = f"it is handed to Slurm once another job that waits there has begun{when}"
    said_at = {task: at for task, (_, at) in known.items()}
    return Forecast(spans, unknown, by="Slurm", said_at=said_at, rest=rest)


def nodes_of(slots: int, per_node: int) -> int:
    """How many nodes a request takes, the same part of it on each: one if it fits there, else as few as can be."""
    fewest = max(1, -(-slots // max(1, per_node)))
    return (
        next((nodes for nodes in range(fewest, slots) if slots % nodes == 0), max(1, slots)) if slots else 1
    )
