"""What a host answers about its own condition, taken as a claim: bounded and checked. Pure.

Everything becomes numbers of *subjects*, such as `gpu 0000:3b:00` or `port mlx5_0/1`; what is of another form is left
out. `faults.py` says which numbers are faults.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from trainmaster.protocol import is_run_key

#: number by its name
Numbers = dict[str, float]

GPU, PORT, CARD, FOLDER, STORAGE, DRIVER, CLOCK, RUN, SHM = (
    "gpu", "port", "card", "folder", "storage", "driver", "clock", "run", "shm",
)  # fmt: skip
#: how the host calls the folder that its runs are in
RUN_FOLDER = "."
#: subjects of one kind in one answer
MOST = 64
_MOST_DENIED, _LONGEST_DENIED = 8, 300
_MOST_NUMBER = 2**62
#: of a name, which is the device of a sign
_LONGEST = 64
_NAME = re.compile(r"[\w][\w./:@-]{0,62}", re.ASCII)
_OF_GPUS = (
    "ecc_volatile", "ecc_aggregate", "rows_corrected", "rows_uncorrected", "rows_pending", "rows_failed", "pages",
    "pages_pending", "throttle", "width", "width_most", "generation", "generation_most", "pstate", "busy",
    "memory_used", "memory_total", "processes", "lost", "reset",
)  # fmt: skip
_OF_PORTS = ("rate", "link_downed", "symbol_error")
_OF_CARDS = ("rate", "carrier_changes")
_OF_FOLDERS = ("free", "total", "read_only", "late")
_OF_SHM = ("used", "total", "left", "files")
_UP, _DOWN = ("ACTIVE", "up"), ("DOWN", "down", "lowerlayerdown", "notpresent")


@dataclass(frozen=True)
class Asked:
    """What the server has asked about: nothing else is taken. `gpus`: UUID -> PCI address.

    `folders` are those that jobs name, `storage` those that the server's settings name.
    """

    gpus: Mapping[str, str] = field(default_factory=dict)
    folders: tuple[str, ...] = ()
    storage: tuple[str, ...] = ()


@dataclass(frozen=True)
class Look:
    """One look at a host: `at_us` since its boot. `has`: the kinds of subjects of which it told all that there are."""

    boot: str
    at_us: int
    subjects: dict[tuple[str, str], Numbers]
    has: frozenset[str]
    denied: tuple[str, ...]


def read(
    told: object, asked: Asked, *, server_now: float, run_folder: str, over: Iterable[str]
) -> Look | None:
    """The look in an answer; None if it is none. `over`: the runs that have ended, by the server's own rows."""
    if not isinstance(told, dict) or not isinstance(told.get("boot"), str):
        return None
    at = _number(told.get("at"))
    if not told["boot"] or len(told["boot"]) > 64 or at is None:
        return None
    found: dict[tuple[str, str], Numbers] = {}
    for uuid, numbers in _rows(told.get("gpus")):
        if uuid in asked.gpus:
            found[GPU, asked.gpus[uuid][:_LONGEST]] = _numbers(numbers, _OF_GPUS)
    for kind, names, key in ((PORT, _OF_PORTS, "ports"), (CARD, _OF_CARDS, "cards")):
        for name, numbers in _rows(told.get(key)):
            if _NAME.fullmatch(name):
                found[kind, name] = {**_numbers(numbers, names), **_up(numbers)}
    for name, numbers in _rows(told.get("folders")):
        if name == RUN_FOLDER or name in asked.storage:
            path = run_folder if name == RUN_FOLDER else name
            found[STORAGE, path[:_LONGEST]] = _numbers(numbers, _OF_FOLDERS)
        elif name in asked.folders:
            found[FOLDER, name[:_LONGEST]] = _numbers(numbers, _OF_FOLDERS)
    found[DRIVER, "driver"] = _numbers({"late": told.get("driver_late", 0)}, ("late",))
    found[CLOCK, "clock"] = _clock(told.get("now"), server_now)
    found[SHM, "/dev/shm"] = _numbers(told.get("shm"), _OF_SHM)
    ended = set(over)
    for key, count in runs(told).items():
        if key in ended:
            found[RUN, key[:_LONGEST]] = {"processes": count}
    has = {
        kind
        for kind, key in ((PORT, "ports"), (CARD, "cards"), (RUN, "runs"))
        if isinstance(told.get(key), dict)
    }
    return Look(printable(told["boot"]), int(at), found, frozenset(has), _denied(told.get("denied")))


def runs(told: object) -> dict[str, float]:
    """How many processes of each run the host has, by run key."""
    counted = told.get("runs") if isinstance(told, dict) else None
    if not isinstance(counted, dict):
        return {}
    rows = list(counted.items())[:MOST]
    return {key: number for key, count in rows if is_run_key(key) and (number := _number(count))}


def printable(text: str) -> str:
    return "".join(letter for letter in text if letter.isprintable())


def _rows(told: object) -> list[tuple[str, Mapping[str, Any]]]:
    rows = list(told.items())[:MOST] if isinstance(told, dict) else []
    return [(name, row) for name, row in rows if isinstance(name, str) and isinstance(row, dict)]


def _numbers(told: object, names: Iterable[str]) -> Numbers:
    if not isinstance(told, Mapping):
        return {}
    return {name: number for name in names if (number := _number(told.get(name))) is not None}


def _number(value: object) -> float | None:
    """Whole as an int, so that its digits stay; yes and no are 1 and 0."""
    if not isinstance(value, int | float) or not 0 <= value < _MOST_NUMBER:
        return None
    return int(value) if isinstance(value, int) else value


def _up(numbers: Mapping[str, Any]) -> Numbers:
    state = numbers.get("state")
    return {"up": 1} if state in _UP else {"up": 0} if state in _DOWN else {}


def _clock(now: object, server_now: float) -> Numbers:
    """How far the host's clock is `ahead` of the server's, or `behind` it."""
    number = _number(now)
    if number is None:
        return {}
    return {"ahead": max(0.0, number - server_now), "behind": max(0.0, server_now - number)}


def _denied(told: object) -> tuple[str, ...]:
    said = [each for each in told[:_MOST_DENIED] if isinstance(each, str)] if isinstance(told, list) else []
    return tuple(printable(each[:_LONGEST_DENIED]) for each in said)
