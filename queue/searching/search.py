"""The searchers: single, random, grid, async_halving, adaptive_asha. State in, state and operations out.

An event told twice changes nothing the second time, and no event is needed to bring the search on but those
of its own trials; so it may be fed from any number of processes, one at a time.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Collection, Mapping
from typing import Any

from searching import custom, done, halving, hyperparameters, judging
from searching.drawing import ID_BITS, draws_of_trial
from searching.events import (
    Again,
    BadSearch,
    Create,
    Event,
    Operation,
    Shutdown,
    TrialExited,
    ValidationReported,
)
from searching.state import (
    BRACKET,
    LOST,
    RUNG,
    STANDING,
    TIME,
    Standing,
    State,
    empty,
    number_of,
    request_id_of,
    still_open,
    upgraded,
)

#: samples that may turn out invalid before the search is given up
MAX_INVALID_SAMPLES = 100
#: trials of one search in all, and of those open at a time: each is a row, made while the experiment is locked
MOST_TRIALS, MOST_AT_ONCE = 100_000, 2_000
MOST_RUNGS, MOST_DIVISOR = 100, 1_000
_HALVING = ("async_halving", "adaptive_asha")
_DEFAULTS = {"divisor": 4, "max_rungs": 5, "num_rungs": 1, "mode": "standard", "smaller_is_better": True}


def start(searcher: dict[str, Any], hparams: dict[str, Any], seed: int) -> tuple[State, list[Operation]]:
    """Begin a search. `searcher` and `hparams`: those sections of a config; raises BadSearch."""
    name = searcher.get("name")
    if name == "custom":
        return custom.begin(_completed(searcher), hparams, seed), []
    if name not in ("single", "random", "grid", *_HALVING):
        allowed = f"single, random, grid, custom, {' or '.join(_HALVING)}"
        raise BadSearch("searcher.name", name, allowed)
    hyperparameters.check(hparams, grid=name == "grid")
    searcher = _completed(searcher)
    if name not in ("single", "grid") and not _counts(searcher.get("max_trials")):
        raise BadSearch("searcher.max_trials", searcher.get("max_trials"), "1 or more")
    if float(searcher["divisor"]) <= 1:
        raise BadSearch("searcher.divisor", searcher["divisor"], "a number greater than 1")
    _check_size(searcher, hparams)
    brackets = _brackets(searcher, hparams)
    if sum(bracket["concurrent"] for bracket in brackets) > MOST_AT_ONCE:
        most = searcher.get("max_concurrent_trials", 16)
        raise BadSearch("searcher.max_concurrent_trials", most, f"at most {MOST_AT_ONCE:,} trials at once")
    state = empty(searcher, hparams, seed, brackets)
    return state, _fill(state)


def on_event(state: State, event: Event) -> tuple[State, list[Operation]]:
    """The next state and what to do; `state` itself is left as it is. Unknown and ended trials are ignored."""
    after = copy.deepcopy(upgraded(state))
    return after, advance(after, event)


def advance(state: State, event: Event) -> list[Operation]:
    """As on_event, but changes `state`, which must be of today's form (`upgraded`), in place."""
    number = number_of(state, event.request_id)
    if number is None:
        return []
    if isinstance(event, ValidationReported):
        return _validated(state, number, event)
    return _exited(state, number, event)


def revive(
    state: State, searcher: dict[str, Any], hparams: dict[str, Any], anew: Collection[str] = ()
) -> tuple[State, list[Operation]]:
    """Go on with a search that has ended, of the kinds single, random and grid, by these sections of the config.

    Its trials run again, as many at once as it may have. Those that completed stay as they are, but for the one of a
    single search, which gets what changed `hparams` say. Those in `anew` (request ids) count from their beginning.
    """
    state = copy.deepcopy(upgraded(state))
    is_changed = hparams != state["hparams"]
    state["searcher"] = _completed(searcher)
    state["hparams"], state["over"] = hparams, False
    is_single = searcher.get("name") == "single"
    for number in range(len(state["trials"]) - 1 if is_single else 0, len(state["trials"])):
        trial = state["trials"][number]
        before = Standing(trial[STANDING])
        # of an experiment that was killed as a whole, nobody told the search: its trials are still on
        if not is_single and before not in LOST | {Standing.ON, Standing.AGAIN}:
            continue
        _forget(state, number, before)
        trial[STANDING] = Standing.AGAIN.value
        state["again"].append([number, _drawn(state, number)[0] if is_changed else None])
        if request_id_of(state, number) in anew:
            trial[TIME] = 0
    return state, _fill(state)


def progress(state: State, reported: Mapping[str, float] | None = None) -> float:
    """How much of the search is done, 0 to 1; all of it once it has come to a good end.

    A trial that runs, or has ended badly, counts by what it has reached, or by what it `reported` itself (by request
    id, see `partly_done`).
    """
    state = upgraded(state)
    if state["over"] and _shutdown(state) == Shutdown():
        return 1.0
    if custom.is_custom(state):
        return float(state["custom"]["progress"])
    if has_length(state["searcher"]):
        return done.by_units(state, reported or {})
    return done.by_trials(state, _partly_done(state), reported or {})


def partly_done(state: State) -> list[str]:
    """Request ids of the trials whose own progress counts for that of the search."""
    state = upgraded(state)
    return [request_id_of(state, number) for number in _partly_done(state)]


def compares(state: State) -> bool:
    """Does it judge trials by what they report, rung by rung? The others let all train to their end."""
    return any(bracket["rungs"] for bracket in state["brackets"])


def parked(state: State) -> frozenset[str]:
    """Request ids of the trials that wait at a rung, and are to have no slots."""
    if not state:
        return frozenset()
    state = upgraded(state)
    standings = enumerate(trial[STANDING] for trial in state["trials"])
    return frozenset(request_id_of(state, number) for number, at in standings if at == Standing.PARKED)


def _partly_done(state: State) -> list[int]:
    living = [number for bracket in state["brackets"] for number in bracket["live"]]
    return [*living, *(number for number, _ in state["again"]), *state["lost"]]


def _completed(searcher: dict[str, Any]) -> dict[str, Any]:
    return {**_DEFAULTS, **{key: value for key, value in searcher.items() if value is not None}}


def _check_size(searcher: dict[str, Any], hparams: dict[str, Any]) -> None:
    """Raise BadSearch for a search that no server could carry."""
    if searcher["name"] == "grid":
        trials, field = hyperparameters.grid_size(hparams), "hyperparameters"
    else:
        trials, field = int(searcher.get("max_trials", 1)), "searcher.max_trials"
    if trials > MOST_TRIALS:
        raise BadSearch(field, f"{trials:,} trials", f"at most {MOST_TRIALS:,} trials")
    if searcher["name"] not in _HALVING:
        return
    for name in ("max_rungs", "num_rungs"):
        if int(searcher[name]) > MOST_RUNGS:
            raise BadSearch(f"searcher.{name}", searcher[name], f"at most {MOST_RUNGS} rungs")
    given = searcher.get("bracket_rungs") or []
    if len(given) > MOST_RUNGS or max(given, default=0) > MOST_RUNGS:
        raise BadSearch(
            "searcher.bracket_rungs",
            given,
            f"at most {MOST_RUNGS} brackets of at most {MOST_RUNGS} rungs each",
        )
    if float(searcher["divisor"]) > MOST_DIVISOR:
        raise BadSearch("searcher.divisor", searcher["divisor"], f"at most {MOST_DIVISOR:,}")


def _brackets(searcher: dict[str, Any], hparams: dict[str, Any]) -> list[dict[str, Any]]:
    """One bracket without rungs unless the searcher halves."""
    name = searcher["name"]
    if name in _HALVING:
        return halving.brackets(searcher)
    total = {"single": 1, "random": searcher.get("max_trials")}.get(name) or hyperparameters.grid_size(
        hparams
    )
    return [
        {"rungs": [], "total": total, "concurrent": int(searcher.get("max_concurrent_trials", 16)) or total}
    ]


def _validated(state: State, number: int, event: ValidationReported) -> list[Operation]:
    trial = state["trials"][number]
    if trial[STANDING] not in (Standing.ON, Standing.PARKED, Standing.STOPPING):
        return []
    time = event.steps_completed if event.time is None else event.time
    if not _is_news(state, trial, time):
        return []
    trial[TIME] = time
    state["told"] += 1
    if custom.is_custom(state):
        return custom.validated(state, number, event)
    if trial[STANDING] != Standing.ON or not state["brackets"][trial[BRACKET]]["rungs"]:
        return []
    metric = event.metric if state["searcher"]["smaller_is_better"] else -event.metric
    operations = judging.judge(state, number, math.inf if math.isnan(metric) else metric, event.at)
    return operations + _fill(state, event.at)


def _is_news(state: State, trial: list[Any], time: float) -> bool:
    """Whether a validation at `time` changes anything: it reaches a rung, or moves the trial by 1 % of its length.

    Most do neither, and cost a large search no writing of its state.
    """
    if custom.is_custom(state):
        return bool(time > trial[TIME])
    rungs = state["brackets"][trial[BRACKET]]["rungs"]
    if rungs and trial[STANDING] == Standing.ON and time >= rungs[trial[RUNG]]["units"]:
        return True
    return (
        has_length(state["searcher"])
        and time >= float(trial[TIME]) + halving.max_time(state["searcher"]) / 100
    )


def _exited(state: State, number: int, event: TrialExited) -> list[Operation]:
    trial = state["trials"][number]
    before = Standing(trial[STANDING])
    if before in state["ends"]:
        return []
    state["told"] += 1
    bracket = state["brackets"][trial[BRACKET]]
    end = Standing.COMPLETED if before == Standing.STOPPING else Standing(event.reason.value)
    trial[STANDING] = end.value
    state["ends"][end] += 1
    if end in LOST:
        state["lost"].append(number)
    operations: list[Operation] = []
    if before == Standing.ON:
        bracket["live"].remove(number)
    if custom.is_custom(state):
        return custom.exited(state, event, end)
    if before == Standing.ON:
        if end == Standing.INVALID_HP:
            operations = judging.withdraw(state, number, event.at) if bracket["rungs"] else []
            _replace(state, bracket)
        elif end in LOST and bracket["rungs"]:
            operations = judging.give_up(state, number, event.at)
        elif bracket["rungs"]:
            bracket["early"].append(number)
    elif before == Standing.PARKED:
        judging.left(state, number, end, event.at)
    else:
        _forget(state, number, Standing.AGAIN)
    return operations + _fill(state, event.at)


def _replace(state: State, bracket: dict[str, Any]) -> None:
    """Another sample takes the place of an invalid one, if another may be valid."""
    state["invalid"] += 1
    if state["searcher"]["name"] != "grid" and state["invalid"] <= MAX_INVALID_SAMPLES:
        bracket["made"] -= hyperparameters.varies(state["hparams"])


def _forget(state: State, number: int, before: Standing) -> None:
    """Take a trial out of the lists that it stands in."""
    if before in state["ends"]:
        state["ends"][before] -= 1
    if before in LOST:
        state["lost"].remove(number)
    elif before == Standing.ON:
        state["brackets"][state["trials"][number][BRACKET]]["live"].remove(number)
    state["again"] = [each for each in state["again"] if each[0] != number]


def _fill(state: State, at: float | None = None) -> list[Operation]:
    """Make trials until each bracket has as many at once as it may; end the search when all have ended.

    Those that are to run `again`, and do not yet, come before new ones.
    """
    if state["over"]:
        return []
    operations: list[Operation] = []
    for index, bracket in enumerate(state["brackets"]):
        for number, hparams in list(state["again"]):
            if state["trials"][number][BRACKET] == index and len(bracket["live"]) < bracket["concurrent"]:
                state["again"].remove([number, hparams])
                state["trials"][number][STANDING] = Standing.ON.value
                bracket["live"].append(number)
                operations.append(Again(request_id_of(state, number), hparams))
        while len(bracket["live"]) < bracket["concurrent"] and bracket["made"] < bracket["total"]:
            operations.append(_create(state, index))
        operations += judging.close(state, index, at)
    if not operations and still_open(state) == 0:
        state["over"] = True
        operations.append(_shutdown(state))
    return operations


def _create(state: State, index: int) -> Create:
    """The next sample: it depends on the seed and the trial's number alone."""
    number, bracket = len(state["trials"]), state["brackets"][index]
    hparams, seed = _drawn(state, number)
    state["trials"].append([index, 0, 0, Standing.ON.value])
    bracket["live"].append(number)
    bracket["made"] += 1
    bracket["closed"] = 0
    return Create(request_id_of(state, number), hparams, seed)


def _drawn(state: State, number: int) -> tuple[dict[str, Any], int]:
    """Hyperparameters and seed of a trial."""
    draws = draws_of_trial(state["seed"], number)
    draws.bits(ID_BITS)
    seed = draws.bits(31)
    if state["searcher"]["name"] == "grid":
        return hyperparameters.grid_point(state["hparams"], number), seed
    return hyperparameters.sample(state["hparams"], draws), seed


def _shutdown(state: State) -> Shutdown:
    """Failed (or canceled) as a whole if not one trial came to a good end."""
    ends = state["ends"]
    if ends[Standing.COMPLETED] or not state["trials"]:
        return Shutdown()
    canceled = ends[Standing.CANCELED] == len(state["trials"])
    return Shutdown(failure=not canceled, cancel=canceled)


def _counts(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 1


def has_length(searcher: dict[str, Any]) -> bool:
    return searcher.get("max_time") is not None or searcher.get("max_length") is not None
