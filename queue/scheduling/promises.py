"""What a pool has promised: the first forecast of a wait, and whether it was kept.

A task that still waits when its promise is over is given no new range: it reads "was expected by …" with its reason,
until what it waits for has changed (the run that it was told of has ended, or work is stopped for it). What another
scheduler says is shown as long as it says so: its first word is a promise that the start comes by then. Pure.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from typing import Any

from scheduling.calibration import Guess
from scheduling.durations import Span
from scheduling.forecast import Forecast
from scheduling.reasons import about, clock, still_about
from scheduling.world import Plan


@dataclass(frozen=True, slots=True)
class Promise:
    """`span`: the range that was shown first, at `at`. `missed`: what is shown since it was missed, empty before.

    `guess`: what the model said of it (`scheduling.calibration`), None if that was not kept.
    `about`: what the task waited for when it was missed (`reasons.about`). Times are epoch seconds.
    """

    at: float
    span: Span
    missed: str = ""
    about: tuple[str, ...] = ()
    guess: Guess | None = None

    def record(self) -> dict[str, Any]:
        """As it is stored with the plan."""
        return {
            "at": self.at,
            "span": list(self.span),
            "missed": self.missed,
            "about": list(self.about),
            "guess": self.guess,
        }

    @classmethod
    def of(cls, record: Mapping[str, Any]) -> Promise:
        earliest, latest = record["span"]
        guess = record.get("guess")
        about = tuple(record["about"])
        return cls(record["at"], (earliest, latest), record["missed"], about, tuple(guess) if guess else None)


@dataclass(frozen=True, slots=True)
class Kept:
    """`promises`: task id -> the promise that is live. `missed`: tasks of which it was missed just now.

    `gone`: the promises of tasks that have started since, or wait no more: their jobs were paused or ended.
    """

    forecast: Forecast
    promises: Mapping[str, Promise]
    missed: Mapping[str, Promise]
    gone: Mapping[str, Promise]


def keep(
    before: Mapping[str, Promise],
    found: Forecast,
    plan: Plan,
    now: float,
    started: Collection[str] = (),
    running: Collection[str] = (),
    since: float = 0.0,
) -> Kept:
    """The forecast as it may be shown, given what was promised `before`.

    `started`: tasks that have started since they were promised, even if they wait again. `running`: labels of runs.
    `since`: earlier promises no longer hold, since windows of the pool were edited then.
    """
    spans, unknown = dict(found.spans), dict(found.unknown)
    live = {task: promise for task, promise in before.items() if task in plan.waits and task not in started}
    promises: dict[str, Promise] = {}
    missed: dict[str, Promise] = {}
    reasons = {id(reason): reason for reason in plan.waits.values()}  # many tasks share one
    abouts = {key: tuple(about(reason.record())) for key, reason in reasons.items()}
    for task, reason in plan.waits.items():
        promise, now_about = live.get(task), abouts[id(reason)]
        if promise is not None and promise.at < since < now:
            promise = None
        if promise is not None and promise.missed and not still_about(promise.about, now_about, running):
            promise = None
        if promise is not None and not promise.missed and now > promise.span[1]:
            text = f"was expected by {clock(promise.span[1], now)}; {reason.sentence}"
            promise = missed[task] = replace(promise, missed=text, about=now_about)
        if promise is not None and promise.missed and not (found.by and task in spans):
            spans.pop(task, None)
            unknown[task] = promise.missed
        elif promise is None and task in spans:
            span = (now, spans[task][1]) if found.by else spans[task]
            promise = Promise(now, span, guess=found.guesses.get(task))
        if promise is not None:
            promises[task] = promise
    gone = {task: promise for task, promise in before.items() if task not in live}
    return Kept(replace(found, spans=spans, unknown=unknown), promises, missed, gone)
