"""When waiting work will start: a range that holds its start with 80 % probability, or a sentence why nobody knows.

The queue is played forward some dozens of times: in each future, what runs ends at some moment of its range, what
starts lasts some time of its range, and requests are placed in the order of the queue (`timeline`). The
range is what most of these futures agree on. The work is bounded by counts, never by a clock.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from math import ceil, inf

from scheduling.futures import futures
from scheduling.reasons import NEVER, WaitCode, listed
from scheduling.turns import Play
from scheduling.world import Plan, Request, Snapshot

#: waiting requests that get a forecast, the first in the queue
MOST_FORECASTS = 200
#: the part of the futures before the range's earliest and after its latest
TAIL = 0.1
#: ranges grow by so much for what the futures leave out, more where others may stop what starts; set by replays
WIDER, WIDER_WHERE_DISTURBED = 1.07, 1.17


@dataclass(frozen=True, slots=True)
class Forecast:
    """`spans`: task id -> (earliest, latest) start, epoch seconds. `unknown`: task id -> why there is none.

    Every request of the plan that waits is in one of the two, but for those that never start here, and those that
    were not asked for.
    """

    spans: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    unknown: Mapping[str, str] = field(default_factory=dict)


def forecast(
    snapshot: Snapshot, plan: Plan, recent: Sequence[Request] = (), asked: Collection[str] | None = None
) -> Forecast:
    """`plan` is what `decide(snapshot)` answered. Pure: the same input gives the same ranges.

    `recent`: what was submitted to this pool in, say, the last day, ended or not; it tells what may still come and go
    first. Ranges are better with it in a small pool with priorities. `asked`: tasks that must be answered; the queue
    is played no further than the last of these, since what stands behind it does not move it. None: all.
    """
    requests = {request.task_id: request for request in snapshot.requests}
    waiting = [
        requests[task] for task in plan.order if task in plan.waits and plan.waits[task].code not in NEVER
    ]
    spans: dict[str, tuple[float, float]] = {}
    unknown: dict[str, str] = {}
    played = []
    for place, request in enumerate(waiting):
        reason = plan.waits[request.task_id]
        if place >= MOST_FORECASTS:
            unknown[request.task_id] = (
                f"{place:,} requests are ahead of it; only the first {MOST_FORECASTS} get a forecast"
            )
        elif reason.code in (WaitCode.BLOCKED, WaitCode.HOSTS_OFF, WaitCode.NO_HOSTS):
            unknown[request.task_id] = reason.sentence
        else:
            played.append(request)
    if asked is not None:
        places = [place for place, request in enumerate(played) if request.task_id in asked]
        played = played[: places[-1] + 1] if places else []
    for work in ([r for r in played if r.slots > 0], [r for r in played if r.slots == 0]):
        if work:
            play = Play(snapshot, plan, work)
            for task, starts in futures(play, snapshot.now, recent).items():
                span = _span(starts, snapshot.now, WIDER_WHERE_DISTURBED if play.disturbed else WIDER)
                if span is not None:
                    spans[task] = span
                else:
                    unknown[task] = _why(play, requests[task])
    return Forecast(spans, unknown)


def _span(starts: list[float], now: float, wider: float) -> tuple[float, float] | None:
    """The middle of the futures; None when too many of them never start it."""
    starts = sorted(starts)
    skip = max(0, ceil(TAIL * (len(starts) + 1)) - 1)
    first, last = starts[skip], starts[-1 - skip]
    if last == inf:
        return None
    return now + max(0.0, first - now) / wider, now + max(0.0, last - now) * wider


def _why(play: Play, request: Request) -> str:
    """Whose end nobody knows."""
    runs = [run.request.label for run in play.runs if run.left is None and not run.stopping]
    if runs:
        reports, has = ("reports", "has") if len(set(runs)) == 1 else ("report", "have")
        return f"{listed(dict.fromkeys(runs))} {reports} no progress and {has} no time limit"
    before = []
    for other in play.waiting:
        if other.task_id == request.task_id:
            break
        if other.lasts is None:
            before.append(other.label)
    if before:
        has = "has" if len(set(before)) == 1 else "have"
        return f"{listed(dict.fromkeys(before))} ahead of it {has} no time limit, and nothing similar has run here yet"
    return "running work leaves no space for it within the time that can be predicted"
