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
_INFINIBAND = "InfiniBand"
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
    #: UUID of the GPU at a PCI address
    gpus: dict[str, str] = field(default_factory=dict)
    #: all that were asked about, whether they answered or not
    folders: frozenset[str] = frozenset()


def read(
    told: object, asked: Asked, *, server_now: float, run_folder: str, over: Mapping[str, str | None]
) -> Look | None:
    """The look in an answer; None if it is none. What could not be measured is no subject of it.

    `over`: the runs that have ended, by the server's own rows, with the account of each, None for the login's.
    """
    if not isinstance(told, dict) or not isinstance(told.get("boot"), str):
        return None
    at = _number(told.get("at"))
    if not told["boot"] or len(told["boot"]) > 64 or at is None:
        return None
    found: dict[tuple[str, str], Numbers] = {}
    gpus = {asked.gpus[uuid][:_LONGEST]: uuid for uuid, _ in _rows(told.get("gpus")) if uuid in asked.gpus}
    for uuid, numbers in _rows(told.get("gpus")):
        if uuid in asked.gpus:
            found[GPU, asked.gpus[uuid][:_LONGEST]] = _numbers(numbers, _OF_GPUS)
    found.update(_links(told))
    for name, numbers in _rows(told.get("folders")):
        if name == RUN_FOLDER or name in asked.storage:
            path = run_folder if name == RUN_FOLDER else name
            found[STORAGE, path[:_LONGEST]] = {**_folder(numbers), "own": path == run_folder}
        elif name in asked.folders:
            found[FOLDER, name[:_LONGEST]] = _folder(numbers)
    found[DRIVER, "driver"] = _numbers({"late": told.get("driver_late")}, ("late",))
    found[CLOCK, "clock"] = _clock(told.get("now"), server_now)
    found[SHM, "/dev/shm"] = _numbers(told.get("shm"), _OF_SHM)
    for key, counted in runs(told).items():
        if key in over and (count := counted.get(over[key] or str(told.get("account")))):
            found[RUN, key[:_LONGEST]] = {"processes": count}
    links = (PORT, CARD)  # those are there, whatever they tell
    found = {each: numbers for each, numbers in found.items() if each[0] in links or numbers.keys() - {"own"}}
    has = {
        kind
        for kind, keys in ((PORT, ("ports",)), (CARD, ("ports", "cards")), (RUN, ("runs",)))
        if all(isinstance(told.get(key), dict) for key in keys)
    }
    folders = frozenset(name[:_LONGEST] for name in (run_folder, *asked.storage, *asked.folders))
    denied = _denied(told.get("denied"))
    return Look(printable(told["boot"]), int(at), found, frozenset(has), denied, gpus, folders)


def runs(told: object) -> dict[str, dict[str, float]]:
    """How many processes each account has with the marker of a run, by run key."""
    counted = told.get("runs") if isinstance(told, dict) else None
    return {
        key: {name: number for name, count in list(each.items())[:MOST] if (number := _number(count))}
        for key, each in _rows(counted)
        if is_run_key(key)
    }


def _links(told: Mapping[str, Any]) -> dict[tuple[str, str], Numbers]:
    """A port of another layer than InfiniBand is a network card: its state is told, and takes nothing out of use."""
    found: dict[tuple[str, str], Numbers] = {}
    for key, names in (("cards", _OF_CARDS), ("ports", _OF_PORTS)):
        for name, row in _rows(told.get(key)):
            numbers = {**_numbers(row, names), **_up(row)}
            if key == "ports" and row.get("layer") == _INFINIBAND:
                kind = PORT
            else:
                kind = CARD
                numbers.pop("link_downed", None)
                numbers.pop("symbol_error", None)
                if key == "ports" and "rate" in numbers:
                    numbers["rate"] *= 1000
            if _NAME.fullmatch(name):
                found[kind, name] = numbers
    return found


def _folder(row: Mapping[str, Any]) -> Numbers:
    """Nothing of one that is not there, or fails otherwise: it was not looked at."""
    numbers = _numbers(row, _OF_FOLDERS)
    if "late" in numbers:
        return {"late": numbers["late"]}
    if not numbers.keys() >= {"free", "total", "read_only"}:
        return {}
    return {**numbers, "writable": int(not numbers["read_only"])}


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
