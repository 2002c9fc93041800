"""What jobs give back whose `max_slots` was lowered below what they hold."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from scheduling.reasons import slots
from scheduling.world import Release, Snapshot


class Held(NamedTuple):
    """A run of the job that is not being stopped."""

    started_at: float
    allocation_id: str
    slots: int
    preemptible: bool = True


def above(runs: Iterable[Held], most: int) -> list[Held]:
    """The newest preemptible runs without which the job holds at most `most` slots, or as few as it can; no more."""
    newest_first = sorted(runs, reverse=True)
    held = sum(run.slots for run in newest_first)
    given: list[Held] = []
    for run in newest_first:
        if held > most and run.preemptible and run.slots:
            given.append(run)
            held -= run.slots
    for run in reversed(given):  # a larger run may have made a newer one needless
        if held + run.slots <= most:
            given.remove(run)
            held += run.slots
    return given


def releases(snapshot: Snapshot) -> list[Release]:
    """The stops that bring every job within its `max_slots`, whatever the policy and its switch for preemption."""
    runs: dict[str, list[Held]] = {}
    most: dict[str, int] = {}
    tasks: dict[str, str] = {}
    for request in snapshot.requests:
        running = request.running
        if request.max_slots is not None and running is not None and not running.stopping:
            held = Held(running.started_at, running.allocation_id, request.slots, request.preemptible)
            runs.setdefault(request.job_id, []).append(held)
            most[request.job_id] = request.max_slots
            tasks[running.allocation_id] = request.task_id
    return [
        Release(run.allocation_id, tasks[run.allocation_id])
        for job_id, its_runs in runs.items()
        for run in above(its_runs, most[job_id])
    ]


def answer(runs: Sequence[Held], most: int | None) -> str:
    """What lowering the limit to `most` does to these runs, to follow a sentence; empty if nothing."""
    held = sum(run.slots for run in runs)
    if most is None or held <= most:
        return ""
    asked = above(runs, most)
    if not asked:
        return f"; it holds {held}, which are not preemptible and stay until they end"
    given = slots(sum(run.slots for run in asked))
    what = f"1 run ({given}) is" if len(asked) == 1 else f"{len(asked)} runs ({given}) are"
    return f"; it holds {held}, and {what} asked to save and give back {'its' if len(asked) == 1 else 'their'} slots"
