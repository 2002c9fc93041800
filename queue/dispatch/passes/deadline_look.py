"""What a forecast means for deadlines: which jobs go ahead, whose deadline cannot be met, and what pages say of it."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any

from jobs import deadlines
from scheduling.deadlines import Look, Outcome, look
from scheduling.forecast import Forecast, forecast
from scheduling.world import Plan, Request, Snapshot

#: so many deadlines that cannot be met are told with one forecast
MOST_TOLD = 100


def of(
    snapshot: Snapshot,
    plan: Plan,
    found: Forecast,
    recent: Sequence[Request],
    places: Sequence[float],
    late: Sequence[float],
    asked: Collection[str] | None = None,
    cannot: Collection[str] = (),
) -> Look:
    """What becomes of the deadlines of a pool, or of the jobs `asked` for.

    `cannot`: jobs that cannot meet theirs by its last forecast. The others are what its forecast `found` was made of.
    """

    def play(order: Sequence[str], tasks: Sequence[str]) -> Forecast:
        return forecast(snapshot, replace(plan, order=tuple(order)), recent, tasks, places, late)

    return look(snapshot, plan, found, play, asked, cannot)


def records(seen: Look, requests: Sequence[Request]) -> dict[str, dict[str, Any]]:
    """Job id -> what is kept of its deadline with the forecast, with the tasks of which the sentence tells."""
    tasks: dict[str, list[str]] = {job_id: [] for job_id in seen.verdicts}
    for request in requests if tasks else ():
        if request.job_id in tasks and request.running is None:
            tasks[request.job_id].append(request.task_id)
    return {
        job_id: {
            "outcome": str(verdict.outcome),
            "sentence": verdict.sentence,
            "latest_start": verdict.latest_start,
            "tasks": tasks[job_id] if verdict.tells else [],
        }
        for job_id, verdict in seen.verdicts.items()
    }


def late(records: Mapping[str, Mapping[str, Any]]) -> set[str]:
    """The jobs that cannot meet their deadlines, by what was kept of them."""
    return {job_id for job_id, record in records.items() if record["outcome"] == Outcome.LATE}


def carry_out(seen: Look, requests: Sequence[Request]) -> None:
    """Move jobs ahead, and write whose deadline cannot be met. Each is a transaction of its own.

    Of many that cannot be met at once, the next forecasts tell the rest.
    """
    told = [job_id for job_id, verdict in seen.verdicts.items() if verdict.outcome is Outcome.LATE]
    if not (seen.moves or told):
        return
    at = {one.job_id: one.deadline for one in requests if one.deadline is not None}
    for job_id, move in seen.moves.items():
        deadlines.go_ahead(move, at[job_id])
    for job_id in deadlines.not_told(told, MOST_TOLD):
        deadlines.tell_late(job_id, at[job_id], seen.verdicts[job_id].sentence)
