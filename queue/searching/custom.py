"""A search that its user's program runs: the server tells it events, and does what it asks for.

The state is that of other searches (searching.state) with request ids of the program's own, and beside it
{"custom": {"events": those that nobody has acknowledged, oldest first, "next": the next event's id, "progress": 0 to 1,
"lengths": {number of a trial: the lengths at which it is to validate}, "metrics": {number: the newest},
"ending": null, or how it is to end}}.
"""

from __future__ import annotations

import math
import uuid
from dataclasses import dataclass
from typing import Any

from searching.drawing import Draws
from searching.events import (
    BadSearch,
    Create,
    ExitReason,
    Operation,
    Park,
    Promote,
    Shutdown,
    Stop,
    TrialExited,
    ValidationReported,
)
from searching.state import STANDING, TIME, Standing, State, empty, number_of, request_id_of, still_open

_BRACKET = {"rungs": [], "total": 0, "concurrent": 0}
_EXITS = {
    ExitReason.ERRORED: "EXITED_REASON_UNSPECIFIED",
    ExitReason.CANCELED: "EXITED_REASON_USER_CANCELED",
    ExitReason.INVALID_HP: "EXITED_REASON_INVALID_HP",
}


@dataclass(frozen=True, slots=True)
class Wanted:
    """What the program asks for, one after the other; `kind`: create, validate_after, close, progress or shut_down."""

    kind: str
    request_id: str = ""
    hparams: dict[str, Any] | None = None
    length: int = 0
    progress: float = 0.0
    failure: bool = False
    cancel: bool = False


def begin(searcher: dict[str, Any], hparams: dict[str, Any], seed: int) -> State:
    """A search without a trial, whose first event asks for its first operations."""
    state = empty(searcher, hparams, seed, [_BRACKET])
    state["custom"] = {"events": [], "next": 1, "progress": 0.0, "lengths": {}, "metrics": {}, "ending": None}
    _tell(state, {"initialOperations": {}})
    return state


def is_custom(state: State) -> bool:
    return "custom" in state


def events(state: State) -> list[dict[str, Any]]:
    """Those that nobody has acknowledged, the oldest first: {"id", and one of the dialect's events by its name}."""
    return list(state["custom"]["events"])


def validated(state: State, number: int, event: ValidationReported) -> list[Operation]:
    """A trial that has come as far as it was to come waits for what the program says next."""
    trial, lengths = state["trials"][number], state["custom"]["lengths"].get(str(number), [])
    state["custom"]["metrics"][str(number)] = None if math.isnan(event.metric) else event.metric
    operations: list[Operation] = []
    while trial[STANDING] == Standing.ON and lengths and trial[TIME] >= lengths[0]:
        _completed(state, number, lengths.pop(0))
        if not lengths:
            state["brackets"][0]["live"].remove(number)
            trial[STANDING] = Standing.PARKED.value
            operations.append(Park(event.request_id))
    return operations


def exited(state: State, event: TrialExited, end: Standing) -> list[Operation]:
    """Tell the program. `end`: what the search counts it as."""
    if end == Standing.COMPLETED:
        _tell(state, {"trialClosed": {"requestId": event.request_id}})
    else:
        early = {"requestId": event.request_id, "exitedReason": _EXITS[event.reason]}
        _tell(state, {"trialExitedEarly": early})
    return _ended(state)


def operate(state: State, wanted: list[Wanted], event_id: int) -> list[Operation]:
    """Do what the program asks for in answer to an event, and forget the events up to it. Changes `state`.

    Asking again in answer to an event that was answered does nothing. Raises BadSearch; `state` is then of no use.
    """
    if event_id >= state["custom"]["next"]:
        raise BadSearch(
            "triggeredByEvent.id", event_id, f"the id of an event, less than {state['custom']['next']}"
        )
    known = [event["id"] for event in state["custom"]["events"]]
    if event_id not in known or state["over"]:
        return []
    state["custom"]["events"] = [event for event in state["custom"]["events"] if event["id"] > event_id]
    operations: list[Operation] = []
    for each in wanted:
        operations += _DO[each.kind](state, each)
    return operations + _ended(state)


def _create(state: State, wanted: Wanted) -> list[Operation]:
    """The trial waits until it is told how far to train."""
    name = _uuid(wanted.request_id)
    if number_of(state, name) is not None or state["custom"]["ending"]:
        return []
    state["ids"].append(name)
    state["trials"].append([0, 0, 0, Standing.PARKED.value])
    state["brackets"][0]["made"] += 1
    _tell(state, {"trialCreated": {"requestId": name}})
    return [Create(name, wanted.hparams or {}, Draws(f"{state['seed']}:{name}").bits(31)), Park(name)]


def _validate_after(state: State, wanted: Wanted) -> list[Operation]:
    number = _known(state, wanted.request_id)
    trial = state["trials"][number]
    if trial[STANDING] not in (Standing.ON, Standing.PARKED):
        return []
    if wanted.length <= trial[TIME]:  # a trial trains on until it hears that it is parked
        _completed(state, number, wanted.length)
        return []
    state["custom"]["lengths"].setdefault(str(number), []).append(wanted.length)
    if trial[STANDING] == Standing.ON:
        return []
    trial[STANDING] = Standing.ON.value
    state["brackets"][0]["live"].append(number)
    return [Promote(request_id_of(state, number))]


def _close(state: State, wanted: Wanted) -> list[Operation]:
    return _stop(state, _known(state, wanted.request_id))


def _shut_down(state: State, wanted: Wanted) -> list[Operation]:
    """Its trials are stopped, and the search is over when the last of them has ended."""
    state["custom"]["ending"] = {"failure": wanted.failure, "cancel": wanted.cancel}
    return [each for number in range(len(state["trials"])) for each in _stop(state, number)]


def _set_progress(state: State, wanted: Wanted) -> list[Operation]:
    state["custom"]["progress"] = min(1.0, max(0.0, wanted.progress))
    return []


def _stop(state: State, number: int) -> list[Operation]:
    trial = state["trials"][number]
    if trial[STANDING] not in (Standing.ON, Standing.PARKED):
        return []
    if trial[STANDING] == Standing.ON:
        state["brackets"][0]["live"].remove(number)
    trial[STANDING] = Standing.STOPPING.value
    return [Stop(request_id_of(state, number))]


def _ended(state: State) -> list[Operation]:
    if state["custom"]["ending"] is None or state["over"] or still_open(state):
        return []
    state["over"] = True
    return [Shutdown(**state["custom"]["ending"])]


def _tell(state: State, event: dict[str, Any]) -> None:
    state["custom"]["events"].append({"id": state["custom"]["next"], **event})
    state["custom"]["next"] += 1


def _completed(state: State, number: int, length: int) -> None:
    """Its newest validation is the one at `length`."""
    metric = state["custom"]["metrics"].get(str(number))
    done = {"requestId": request_id_of(state, number), "metric": metric, "validateAfterLength": str(length)}
    _tell(state, {"validationCompleted": done})


def _known(state: State, name: str) -> int:
    number = number_of(state, _uuid(name))
    if number is None:
        raise BadSearch("requestId", name, "the requestId of a trial that was created")
    return number


def _uuid(text: str) -> str:
    try:
        return str(uuid.UUID(text))
    except ValueError:
        raise BadSearch("requestId", text, "a UUID") from None


_DO = {
    "create": _create,
    "validate_after": _validate_after,
    "close": _close,
    "shut_down": _shut_down,
    "progress": _set_progress,
}
