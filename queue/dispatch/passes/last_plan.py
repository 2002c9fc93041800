"""The plan of a pool's last pass, for pages, API and command line (`dispatch.passes.kept_plan` keeps it).

Each process makes it once per pass. The forecast follows after the pass has been committed, so that no start waits
for it. Until then, and while it is not due, the former forecast stays. Pages are told only of what they would show.
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import cached_property
from math import inf
from typing import Any

from django.conf import settings
from django.db import connection, transaction
from django.utils import timezone

from dispatch.passes import deadline_look, forecast_outcomes, kept_plan, recent_work
from events.announce import announce
from hosts.models import PoolPlan, ResourcePool
from jobs import feeding
from scheduling import idle_slots, policies, promises, world
from scheduling.calibration import Learned
from scheduling.deadlines import Look
from scheduling.feeding import nothing_since
from scheduling.forecast import Forecast, forecast, places_of, too_far
from scheduling.promises import Promise
from scheduling.reasons import NEVER, about, still_about
from scheduling.spares import freed_for

#: why a forecast is not shown that was made when the task waited for something else
OTHER_REASON = "what it waits for has changed since the last forecast; the next one follows within seconds"
#: a forecast may take this part of the time, but is never older than FORECAST_SECONDS allows
FORECAST_PART = 0.05

# readers keep a plan by its time, so one with another forecast has another time
_ADD = """
WITH same AS (
  UPDATE hosts_resourcepool SET planned_at = planned_at + interval '1 microsecond'
  WHERE id = %(pool)s AND planned_at = %(at)s RETURNING id
)
UPDATE hosts_poolplan SET forecast = %(forecast)s::jsonb, forecast_at = %(at)s, forecast_ms = %(took_ms)s
FROM same WHERE pool_id = same.id
"""


@dataclass(frozen=True)
class Plan:
    """What `store` and `add_forecast` keep. `waits`: task id -> reason record; `forecast`: task id -> epoch seconds."""

    planned_at: datetime | None = None
    took_ms: float | None = None
    waits: dict[str, dict[str, Any]] = field(default_factory=dict)
    forecast: dict[str, list[float]] = field(default_factory=dict)
    #: task id -> why there is no forecast; and of what is too far back, how many requests are ahead
    unknown: dict[str, str] = field(default_factory=dict)
    behind: dict[str, int] = field(default_factory=dict)
    #: another scheduler, whose word the forecasts are; task id -> when it said so, in epoch seconds
    by: str = ""
    said_at: dict[str, float] = field(default_factory=dict)
    #: job id -> slots that it is entitled to, in a fair-share pool
    shares: dict[str, float] = field(default_factory=dict)
    #: task id -> (earliest, latest) end of what runs, in epoch seconds
    ends: dict[str, list[float]] = field(default_factory=dict)
    #: job id -> what the last forecast says of its deadline: outcome, sentence, latest_start
    deadlines: dict[str, dict[str, Any]] = field(default_factory=dict)
    #: task id -> what the hosts reserved for it have cost (`scheduling.idle_slots`)
    reservations: dict[str, dict[str, Any]] = field(default_factory=dict)
    #: id of each host that is kept as a spare -> its "name", its "free" slots, and labels of the "runs" still there
    spares: dict[str, dict[str, Any]] = field(default_factory=dict)

    @cached_property
    def never(self) -> list[str]:
        """The tasks that no waiting will start."""
        return [task_id for task_id, wait in self.waits.items() if wait.get("code") in NEVER]

    def why(self, tasks: Sequence[str]) -> dict[str, Any] | None:
        """Why a job waits whose `tasks` wait: as the one that starts first does, by the forecast or by their order.

        That it never starts is said only where it is so of all of them. None: nothing is known yet.
        """
        known = [task for task in tasks if task in self.waits]
        may = [task for task in known if self.waits[task].get("code") not in NEVER]
        if may:
            return self.waits[min(may, key=lambda task: self.forecast.get(task, [inf]))]
        return self.waits[known[0]] if known and len(known) == len(tasks) else None

    @cached_property
    def soonest(self) -> list[str]:
        """The tasks that have a forecast, those that start first at the front."""
        return sorted(self.forecast, key=self.forecast.__getitem__)

    def why_unknown(self, task_id: str) -> str | None:
        """Why there is no forecast; None if there is one, or nobody has asked for it."""
        return self.unknown.get(task_id) or too_far(self.behind.get(task_id))

    def without_old_words(self, now: datetime) -> Plan:
        """Without what another scheduler said longer ago than that is worth something: no pass has been made since."""
        oldest = now.timestamp() - feeding.SAID_SECONDS
        old = [task for task, at in self.said_at.items() if at < oldest and task in self.forecast]
        if not old:
            return self
        spans = {task: span for task, span in self.forecast.items() if task not in old}
        why = {task: nothing_since(self.by, self.said_at[task], now.timestamp()) for task in old}
        return replace(self, forecast=spans, unknown={**self.unknown, **why})


_latest: dict[int, Plan] = {}


def of(pool: ResourcePool) -> Plan:
    """The plan as of `pool.planned_at`, or a newer one."""
    known = _latest.get(pool.pk)
    if known is not None and pool.planned_at is not None and known.planned_at == pool.planned_at:
        return known.without_old_words(timezone.now())
    kept = kept_plan.read(pool.pk)  # of a removed pool too: what has ended there is still shown
    document, futures = kept.document, kept.forecast
    waits, made_for = document.get("waits") or {}, futures.get("forecast_of") or {}
    spans = dict(futures.get("forecast") or {})
    running = frozenset(document.get("running") or ())
    changed = [
        task
        for task in made_for
        if task in waits and not still_about(made_for[task], about(waits[task]), running)
    ]
    for task_id in changed:
        spans.pop(task_id, None)
    deadlines, reserved = futures.get("deadlines") or {}, futures.get("reservations") or {}
    plan = Plan(
        planned_at=kept.planned_at,
        took_ms=kept.took_ms,
        waits=_with_notes(waits, deadlines, reserved),
        forecast=spans,
        unknown=_rest(waits, spans, futures.get("rest") or "")
        | (futures.get("unknown") or {})
        | dict.fromkeys(changed, OTHER_REASON),
        behind=places_of(futures.get("behind") or ()),
        by=futures.get("by") or "",
        said_at=futures.get("said_at") or {},
        shares=document.get("shares") or {},
        ends=document.get("ends") or {},
        deadlines=deadlines,
        reservations=reserved,
        spares=document.get("spares") or {},
    )
    _latest[pool.pk] = plan
    return plan.without_old_words(timezone.now())


def _rest(waits: Mapping[str, Any], spans: Mapping[str, Any], why: str) -> dict[str, str]:
    """The same sentence for all that waits and has no forecast, but for what never starts here."""
    rest = [task for task, wait in waits.items() if task not in spans and wait.get("code") not in NEVER]
    return dict.fromkeys(rest, why) if why else {}


def _with_notes(
    waits: dict[str, dict[str, Any]], deadlines: Mapping[str, Any], reserved: Mapping[str, Any]
) -> dict[str, dict[str, Any]]:
    """The reasons why tasks wait, with what the last forecast says of their deadlines and reservations."""
    notes = {task: [idle] for task, each in reserved.items() if (idle := idle_slots.told(each))}
    for each in deadlines.values():
        for task in each["tasks"]:
            notes.setdefault(task, []).append(each["sentence"])
    noted = {
        task: {**waits[task], "sentence": "; ".join([waits[task]["sentence"], *said])}
        for task, said in notes.items()
        if task in waits
    }
    return {**waits, **noted} if noted else waits


def store(pool_id: int, snapshot: world.Snapshot, plan: world.Plan, took_ms: float, now: datetime) -> bool:
    """Keep the plan, within the pass, and tell the pages if it is another one; whether it is time for a forecast."""
    before, is_other = kept_plan.write(pool_id, plan.waits, _parts(snapshot, plan), round(took_ms, 1), now)
    if is_other:
        announce(f"plan:{pool_id}")
    if before.forecast_at is None:
        return True
    pause = min(settings.FORECAST_SECONDS, (before.forecast_ms or 0.0) / 1000 / FORECAST_PART)
    return bool((now - before.forecast_at).total_seconds() >= pause)


def _parts(snapshot: world.Snapshot, plan: world.Plan) -> kept_plan.Document:
    """The plan as it is read, but for its reasons. The order of jobs only where nothing else tells it."""
    order: list[str] = []
    if not policies.of(snapshot.pool.scheduler).order:
        job_of = {request.task_id: request.job_id for request in snapshot.requests}
        order = list(dict.fromkeys(job_of[task_id] for task_id in plan.order))
    return {
        "order": order,
        "running": sorted(_running(snapshot, plan)),
        "shares": dict(plan.shares),
        "spares": {
            one.host_id: {"name": one.name, "free": one.free, "runs": list(one.runs)} for one in plan.spares
        },
        "promised": freed_for(snapshot, plan),
        "ends": {
            request.task_id: _minutes(request.running.ends)
            for request in snapshot.requests
            if request.running is not None and request.running.ends is not None
        },
    }


def _minutes(span: tuple[float, float]) -> tuple[float, float]:
    """The whole minutes around a range: each pass estimates it again, and nobody is told of seconds."""
    return math.floor(span[0] / 60) * 60.0, math.ceil(span[1] / 60) * 60.0


def _running(snapshot: world.Snapshot, plan: world.Plan) -> set[str]:
    """Labels of what runs, or starts now."""
    starts = {start.task_id for start in plan.starts}
    return {one.label for one in snapshot.requests if one.running is not None or one.task_id in starts}


def add_forecast(
    pool_id: int, snapshot: world.Snapshot, plan: world.Plan, theirs: Forecast | None, planned_at: datetime
) -> None:
    """Add when each will start, or why nobody knows, to the document of this pass; a newer one gets its own.

    `theirs`: what another scheduler says, where the queue does not decide it.
    """
    promised, learned = past(pool_id)
    started = forecast_outcomes.started(promised)
    recent = recent_work.of(pool_id, snapshot) if plan.waits and theirs is None else ()
    late = forecast_outcomes.late(pool_id, promised, started, snapshot.now)
    begun = time.perf_counter()
    found = theirs or forecast(snapshot, plan, recent, places=learned.places, late=late)
    edited = forecast_outcomes.windows_edited(pool_id, promised)
    kept = promises.keep(promised, found, plan, snapshot.now, started, _running(snapshot, plan), edited)
    found = kept.forecast
    before = kept_plan.read(pool_id).forecast
    cannot = deadline_look.late(before.get("deadlines") or {})
    seen = Look()
    if theirs is None:
        seen = deadline_look.of(snapshot, plan, found, recent, learned.places, late, cannot=cannot)
    took = time.perf_counter() - begun
    outcomes = forecast_outcomes.due(pool_id, kept, started, plan, snapshot.now, learned)
    more = {
        "forecast": {task_id: list(span) for task_id, span in found.spans.items()},
        "forecast_of": {task_id: about(plan.waits[task_id].record()) for task_id in found.spans},
        "unknown": dict(found.unknown),
        "behind": list(found.behind),
        "by": found.by,
        "said_at": dict(found.said_at),
        "rest": found.rest,
        "promises": {task_id: promise.record() for task_id, promise in kept.promises.items()},
        "deadlines": deadline_look.records(seen, snapshot.requests),
        "reservations": _reservations(before.get("reservations") or {}, snapshot, plan),
        "places": list(outcomes.learned.places),
        "places_until": outcomes.learned.newest if outcomes.learned.places else None,
    }
    values: dict[str, Any] = {
        "forecast": json.dumps(more),
        "took_ms": round(took * 1000, 1),
        "pool": pool_id,
        "at": planned_at,
    }
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute(_ADD, values)
        is_newest = bool(cursor.rowcount)
        if is_newest:  # otherwise a newer pass has its own forecast, which keeps the same promises
            forecast_outcomes.write(outcomes)
    if not is_newest:
        return
    if _shown(before) != _shown(more):
        announce(f"plan:{pool_id}")
    deadline_look.carry_out(seen, snapshot.requests)


def _shown(futures: Mapping[str, Any]) -> tuple[object, ...]:
    """What a page says of a forecast: its times in minutes, where they belong to what the job waits for now."""
    spans = {task: [at // 60 for at in span] for task, span in (futures.get("forecast") or {}).items()}
    return (
        spans,
        futures.get("forecast_of"),
        futures.get("unknown"),
        futures.get("behind"),
        futures.get("rest"),
        futures.get("deadlines"),
    )


def _reservations(before: Mapping[str, Any], snapshot: world.Snapshot, plan: world.Plan) -> dict[str, Any]:
    if not plan.reservations:
        return {}
    labels = {one.task_id: one.label for one in snapshot.requests if one.task_id in plan.reservations}
    return {
        task: cost.record() for task, cost in idle_slots.costs(before, plan, labels, snapshot.now).items()
    }


def past(pool_id: int) -> tuple[dict[str, Promise], Learned]:
    """Return the promises of a pool, and where the starts of the last ones were (`scheduling.calibration`)."""
    kept = (
        PoolPlan.objects.filter(pool=pool_id)
        .values_list("forecast__promises", "forecast__places", "forecast__places_until")
        .first()
    )
    promised, places, newest = kept or (None, None, None)
    learned = Learned(tuple(places or ()), -inf if newest is None else newest)
    return {task_id: Promise.of(record) for task_id, record in (promised or {}).items()}, learned
