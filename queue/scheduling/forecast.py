"""When waiting work will start: a range that holds its start with 80 % probability, or a sentence why nobody knows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from scheduling.reasons import NEVER
from scheduling.world import Plan, Snapshot


@dataclass(frozen=True, slots=True)
class Forecast:
    """`spans`: task id -> (earliest, latest) start, epoch seconds. `unknown`: task id -> why there is none.

    Every request of the plan that waits is in one of the two, but for those that never start here.
    """

    spans: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    unknown: Mapping[str, str] = field(default_factory=dict)


def forecast(snapshot: Snapshot, plan: Plan) -> Forecast:
    """`plan` is what `decide(snapshot)` answered. Pure: the same input gives the same ranges."""
    waits = [task for task in plan.order if task in plan.waits and plan.waits[task].code not in NEVER]
    spans = {task: span for task in waits if (span := plan.forecast.get(task)) is not None}
    unknown = {task: plan.waits[task].sentence for task in waits if task not in spans}
    return Forecast(spans, unknown)
