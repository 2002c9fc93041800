"""The stored state of a search: plain JSON, one small list for each trial, by number in the order of their making.

{"version": 2, "searcher", "hparams", "seed", "invalid", "over", "told": events that changed something,
 "ids": request ids of the first trials, where they do not follow from seed and number,
 "trials": [[bracket, rung that it is on the way to, time, standing], ...],
 "again": [[number, other hparams or null], ...],           those that wait to run once more
 "lost": [number, ...],                                     ended, but not well
 "ends": {"completed": n, "canceled": n, ...},
 "brackets": [{"total", "made", "concurrent", "closed": rungs that nobody is on the way to any more,
   "live": [number, ...], "early": [number, ...],           on their way; ended well before the last rung
   "rungs": [{"units", "entries": [[metric, smaller is better, null the worst; number; at; outcome], ...]}]}]}
"""

from __future__ import annotations

from collections import Counter
from enum import StrEnum
from typing import Any

from searching.drawing import number_in, request_id

State = dict[str, Any]

VERSION = 2
#: places in the list of a trial
BRACKET, RUNG, TIME, STANDING = range(4)


class Standing(StrEnum):
    """Where a trial stands."""

    AGAIN = "again"  #: ended once, is to run again as soon as there is room
    ON = "on"
    PARKED = "parked"  #: at a rung, without slots, until it is promoted or the rung is closed
    STOPPING = "stopping"  #: told to stop; it counts as completed whatever its end is
    COMPLETED = "completed"
    CANCELED = "canceled"
    ERRORED = "errored"
    INVALID_HP = "invalid_hp"


class Outcome(StrEnum):
    """What became of a trial at a rung. `PROMOTED`: goes on to the next rung, or went on.

    `GAVE_UP`: ended before it got there, or was parked there when it failed or was killed; counts as the worst.
    """

    PROMOTED = "promoted"
    STOPPED = "stopped"
    WAITING = "waiting"
    RUNNING = "running"
    FINISHED = "finished"
    GAVE_UP = "gave up"


#: ends that are no good ones; how far such a trial came still counts as progress
LOST = frozenset({Standing.CANCELED, Standing.ERRORED})
_ENDS = (Standing.COMPLETED, Standing.CANCELED, Standing.ERRORED, Standing.INVALID_HP)


def empty(searcher: dict[str, Any], hparams: dict[str, Any], seed: int, brackets: list[State]) -> State:
    """A search that has made no trial. `brackets`: {"total", "concurrent", "rungs": [{"units"}]} of each."""
    return {
        "version": VERSION,
        "searcher": searcher,
        "hparams": hparams,
        "seed": seed,
        "invalid": 0,
        "over": False,
        "told": 0,
        "ids": [],
        "trials": [],
        "again": [],
        "lost": [],
        "ends": {end.value: 0 for end in _ENDS},
        "brackets": [_bracket(bracket) for bracket in brackets],
    }


def request_id_of(state: State, number: int) -> str:
    if number < len(state["ids"]):
        return str(state["ids"][number])
    return request_id(state["seed"], number)


def number_of(state: State, name: str) -> int | None:
    """The number of the trial with this request id; None if the search made none such."""
    if name in state["ids"]:
        return int(state["ids"].index(name))
    try:
        number = number_in(name)
    except ValueError:
        return None
    made = len(state["ids"]) <= number < len(state["trials"])
    return number if made and request_id_of(state, number) == name else None


def still_open(state: State) -> int:
    """Trials that have not ended."""
    return len(state["trials"]) - int(sum(state["ends"].values()))


def upgraded(state: State) -> State:
    """The state in today's form; itself if it is in it. In version 1, rungs knew no trials."""
    if state["version"] == VERSION:
        return state
    # their order is not known; nothing but the numbers here depends on it
    old = sorted(state["trials"].items())
    new = empty(state["searcher"], state["hparams"], state["seed"], state["brackets"])
    new |= {"invalid": state["invalid"], "over": state["over"], "ids": [name for name, _ in old]}
    for number, (_, trial) in enumerate(old):
        bracket, standing = new["brackets"][trial["bracket"]], _standing(trial)
        new["trials"].append([trial["bracket"], trial["rung"], trial["time"], standing.value])
        if standing == Standing.AGAIN:
            new["again"].append([number, trial["again"]])
        elif standing == Standing.ON:
            bracket["live"].append(number)
        elif standing in LOST:
            new["lost"].append(number)
    new["ends"] |= Counter(_standing(trial).value for _, trial in old if trial["ended"] is not None)
    for bracket, before in zip(new["brackets"], state["brackets"], strict=True):
        bracket["made"] = before["made"]
        for rung, old_rung in zip(bracket["rungs"], before["rungs"], strict=True):
            rung["entries"] = [[metric, None, None, _passed(metric)] for metric in old_rung["metrics"]]
    new["searcher"] = {**state["searcher"], "stop_once": True}
    return new


def _bracket(made: State) -> State:
    rungs = [{"units": rung["units"], "entries": []} for rung in made["rungs"]]
    return {
        "total": made["total"],
        "concurrent": made["concurrent"],
        "made": 0,
        "closed": 0,
        "live": [],
        "early": [],
        "rungs": rungs,
    }


def _passed(metric: float | None) -> str:
    """Not who, but that somebody came here is known of rungs of version 1."""
    return Outcome.GAVE_UP.value if metric is None else Outcome.FINISHED.value


def _standing(trial: dict[str, Any]) -> Standing:
    if "again" in trial:
        return Standing.AGAIN
    if trial["stopped"]:
        return Standing.STOPPING if trial["ended"] is None else Standing.COMPLETED
    return Standing.ON if trial["ended"] is None else Standing(trial["ended"])
