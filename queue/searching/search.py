"""The searchers: single, random, grid, async_halving, adaptive_asha. State in, state and operations out.

An event told twice changes nothing the second time, and no event is needed to bring the search on but those
of its own trials; so it may be fed from any number of processes, one at a time.
"""

from __future__ import annotations

import copy
import math
import uuid
from collections.abc import Collection, Mapping
from random import Random
from typing import Any

from searching import halving, hyperparameters
from searching.errors import BadSearch
from searching.events import (
    Again,
    Create,
    Event,
    ExitReason,
    Operation,
    Shutdown,
    Stop,
    TrialCreated,
    TrialExited,
    ValidationReported,
)

State = dict[str, Any]

#: samples that may turn out invalid before the search is given up
MAX_INVALID_SAMPLES = 100
_HALVING = ("async_halving", "adaptive_asha")
_DEFAULTS = {"divisor": 4, "max_rungs": 5, "num_rungs": 1, "mode": "standard", "smaller_is_better": True}


def start(searcher: dict[str, Any], hparams: dict[str, Any], seed: int) -> tuple[State, list[Operation]]:
    """Begin a search. `searcher` and `hparams`: those sections of a config; raises BadSearch."""
    name = searcher.get("name")
    if name not in ("single", "random", "grid", *_HALVING):
        allowed = f"single, random, grid, {' or '.join(_HALVING)}"
        raise BadSearch("searcher.name", name, allowed)
    hyperparameters.check(hparams, grid=name == "grid")
    given = {key: value for key, value in searcher.items() if value is not None}
    searcher = {**_DEFAULTS, **given}
    if name not in ("single", "grid") and not _counts(searcher.get("max_trials")):
        raise BadSearch("searcher.max_trials", searcher.get("max_trials"), "1 or more")
    if float(searcher["divisor"]) <= 1:
        raise BadSearch("searcher.divisor", searcher["divisor"], "a number above 1")
    state: State = {
        "version": 1,
        "searcher": searcher,
        "hparams": hparams,
        "seed": seed,
        "drawn": 0,
        "invalid": 0,
        "over": False,
        "trials": {},
        "brackets": _brackets(searcher, hparams),
    }
    return state, _fill(state)


def on_event(state: State, event: Event) -> tuple[State, list[Operation]]:
    """The next state and what to do; `state` itself is left as it is. Unknown and ended trials are ignored."""
    trial = state["trials"].get(event.request_id)
    if trial is None or trial["ended"] is not None or isinstance(event, TrialCreated):
        return state, []
    state = copy.deepcopy(state)
    trial = state["trials"][event.request_id]
    if isinstance(event, ValidationReported):
        return state, _validated(state, trial, event)
    return state, _exited(state, trial, event)


def revive(
    state: State, searcher: dict[str, Any], hparams: dict[str, Any], anew: Collection[str] = ()
) -> tuple[State, list[Operation]]:
    """Go on with a search that has ended, of the kinds single, random and grid, by these sections of the config.

    Its trials run again, as many at once as it may have. Those that completed stay as they are, but for the one of a
    single search, which gets what changed `hparams` say. Those in `anew` (request ids) count from their beginning.
    """
    state = copy.deepcopy(state)
    is_changed = hparams != state["hparams"]
    state["searcher"] = {**_DEFAULTS, **{key: value for key, value in searcher.items() if value is not None}}
    state["hparams"], state["over"] = hparams, False
    drawn = [_drawn(state, number) for number in range(state["drawn"])]
    is_single = searcher.get("name") == "single"
    for made in drawn[-1:] if is_single else drawn:
        trial = state["trials"][made.request_id]
        done = trial["stopped"] or trial["ended"] == ExitReason.COMPLETED
        if is_single or not (done or trial["ended"] == ExitReason.INVALID_HP):
            trial.update(ended=None, stopped=False, again=made.hparams if is_changed else None)
            if made.request_id in anew:
                trial["time"] = 0
    return state, _fill(state)


def progress(state: State, reported: Mapping[str, float] | None = None) -> float:
    """How much of the search is done, 0 to 1, by trials; all of it once it has come to a good end.

    A trial that runs, or has ended badly, counts by what it has reached: the part of its length where that is known,
    or what it `reported` itself (by request id).
    """
    if state["over"] and _shutdown(state) == Shutdown():
        return 1.0
    total = sum(bracket["total"] for bracket in state["brackets"])
    longest = halving.max_time(state["searcher"]) if _has_length(state["searcher"]) else None
    done = 0.0
    for request_id, trial in state["trials"].items():
        if trial["stopped"] or trial["ended"] == ExitReason.COMPLETED:
            done += 1
        elif trial["ended"] != ExitReason.INVALID_HP:
            reached = trial["time"] / longest if longest else 0.0
            done += min(1.0, max(reached, (reported or {}).get(request_id, 0.0)))
    return min(1.0, done / total) if total else 1.0


def _brackets(searcher: dict[str, Any], hparams: dict[str, Any]) -> list[dict[str, Any]]:
    """One bracket without rungs unless the searcher halves."""
    name = searcher["name"]
    if name in _HALVING:
        return halving.brackets(searcher)
    total = {"single": 1, "random": searcher.get("max_trials")}.get(name) or hyperparameters.grid_size(
        hparams
    )
    at_once = int(searcher.get("max_concurrent_trials", 16)) or total
    return [{"rungs": [], "total": total, "concurrent": at_once, "made": 0}]


def _validated(state: State, trial: dict[str, Any], event: ValidationReported) -> list[Operation]:
    time = event.steps_completed if event.time is None else event.time
    trial["time"] = max(trial["time"], time)
    bracket = state["brackets"][trial["bracket"]]
    if trial["stopped"] or not bracket["rungs"]:
        return []
    metric = event.metric if state["searcher"]["smaller_is_better"] else -event.metric
    worst = math.isnan(metric)
    if halving.judge(
        bracket, trial, math.inf if worst else metric, time, float(state["searcher"]["divisor"])
    ):
        trial["stopped"] = True
        return [Stop(event.request_id), *_fill(state)]
    return []


def _exited(state: State, trial: dict[str, Any], event: TrialExited) -> list[Operation]:
    trial["ended"] = event.reason.value
    bracket = state["brackets"][trial["bracket"]]
    if event.reason == ExitReason.INVALID_HP and not trial["stopped"]:
        state["invalid"] += 1
        if state["searcher"]["name"] != "grid" and _another_may_be_valid(state):
            bracket["made"] -= 1  # another sample takes its place
    elif bracket["rungs"] and not trial["stopped"]:
        halving.give_up(bracket, trial)
    return _fill(state)


def _another_may_be_valid(state: State) -> bool:
    return state["invalid"] <= MAX_INVALID_SAMPLES and hyperparameters.varies(state["hparams"])


def _fill(state: State) -> list[Operation]:
    """Make trials until each bracket has as many at once as it may; end the search when all have ended.

    Those that are to run `again`, and do not yet, come before new ones.
    """
    if state["over"]:
        return []
    operations: list[Operation] = []
    for index, bracket in enumerate(state["brackets"]):
        trials = {name: trial for name, trial in state["trials"].items() if trial["bracket"] == index}
        waiting = [name for name, trial in trials.items() if "again" in trial]
        on = sum(trial["ended"] is None and not trial["stopped"] for trial in trials.values())
        running = on - len(waiting)
        for request_id in waiting[: max(0, bracket["concurrent"] - running)]:
            operations.append(Again(request_id, trials[request_id].pop("again")))
            running += 1
        while running < bracket["concurrent"] and bracket["made"] < bracket["total"]:
            operations.append(_create(state, index))
            bracket["made"] += 1
            running += 1
    if not operations and all(trial["ended"] is not None for trial in state["trials"].values()):
        state["over"] = True
        operations.append(_shutdown(state))
    return operations


def _create(state: State, bracket: int) -> Create:
    """The next sample."""
    made = _drawn(state, state["drawn"])
    state["drawn"] += 1
    state["trials"][made.request_id] = {
        "bracket": bracket,
        "rung": 0,
        "time": 0,
        "stopped": False,
        "ended": None,
    }
    return made


def _drawn(state: State, number: int) -> Create:
    """The n-th draw depends on the seed and n alone."""
    random = Random(f"{state['seed']}:{number}")
    request_id = str(uuid.UUID(int=random.getrandbits(128), version=4))
    seed = random.getrandbits(31)
    if state["searcher"]["name"] == "grid":
        hparams = hyperparameters.grid_point(state["hparams"], number)
    else:
        hparams = hyperparameters.sample(state["hparams"], random)
    return Create(request_id, hparams, seed)


def _shutdown(state: State) -> Shutdown:
    """Failed (or canceled) as a whole if not one trial came to a good end."""
    ends = [
        ExitReason.COMPLETED if t["stopped"] else ExitReason(t["ended"]) for t in state["trials"].values()
    ]
    if ExitReason.COMPLETED in ends or not ends:
        return Shutdown()
    canceled = all(end == ExitReason.CANCELED for end in ends)
    return Shutdown(failure=not canceled, cancel=canceled)


def _counts(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 1


def _has_length(searcher: dict[str, Any]) -> bool:
    return searcher.get("max_time") is not None or searcher.get("max_length") is not None
