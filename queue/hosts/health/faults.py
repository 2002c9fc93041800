"""Which numbers of a host are faults: states that last, and counters that rise. Pure.

A state is a sign once so many looks in a row have shown it, and it is over once so many have not. In between nothing is
told again, so that what comes and goes is told once. What was not looked at stays as it was.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from hosts.health import measured, verdicts
from hosts.health.measured import Look, Numbers
from hosts.health.states import STATES
from hosts.health.verdicts import Scope
from trainmaster.kernel_signs import Sign

#: what has not answered for less may only be slow
_LATE_SECONDS = 60.0


class Rule(NamedTuple):
    """Looks in a row with it until it is told, and without it until it is over."""

    after: int = 2
    gone: int = 10


#: kind -> its rule, where that is not the usual one. A sample of a host is due every 30 s.
_RULES = {
    "ecc_uncorrected": Rule(1, 1),
    "ecc_unexplained": Rule(1, 1),
    "gpu_hot": Rule(10),
    "gpu_power_brake": Rule(10),
    "gpu_slowed": Rule(10),
    "pcie_narrow": Rule(4),
    "pcie_slow": Rule(10),
    "gpu_memory_held": Rule(6),
    "port_down": Rule(4),
    "port_gone": Rule(4),
    "port_slow": Rule(4),
    "port_flaps": Rule(1, 20),
    "port_errors": Rule(4),
    "card_down": Rule(4),
    "card_gone": Rule(4),
    "card_slow": Rule(4),
    "card_flaps": Rule(1, 20),
    "clock_off": Rule(4),
    "run_left": Rule(4, 1),
    "shm_left": Rule(4),
}
#: kind -> the number without which a look does not say that it is over
_SHOWN_BY = {
    "port_down": "up",
    "card_down": "up",
    "storage_hangs": "total",
    "storage_read_only": "total",
    "folder_hangs": "total",
    "folder_read_only": "total",
    "disk_full": "total",
    "rows_failed": "rows_failed",
    "pages_full": "pages",
}
_GONE = ("port_gone", "card_gone")
#: of what people leave in use in spite of it, they do not expect that it will be as good as it was
_LEFT = ("port_down", "port_slow", "card_down", "card_slow", "storage_read_only")
#: what is remembered of a subject: counters, and the best that links and folders have been
_COUNTERS = {
    measured.GPU: ("ecc_volatile", "ecc_aggregate"),
    measured.PORT: ("link_downed", "symbol_error"),
    measured.CARD: ("carrier_changes",),
    measured.STORAGE: (),
}
_BEST = {
    measured.PORT: ("up", "rate"),
    measured.CARD: ("up", "rate"),
    measured.STORAGE: ("writable",),
}
_MOST_KNOWN = 3 * measured.MOST

Kept = Mapping[str, Any]
Subjects = Mapping[tuple[str, str], Numbers]


class Found(NamedTuple):
    """`device` as of HostSign, `line`: the evidence."""

    kind: str
    device: str
    line: str


@dataclass(frozen=True)
class Use:
    """What is out of use: the whole `host`, or GPUs by their device. `waits`: (kind, device) of what nobody decided on.

    That is what would be out, had its pool not lost its share already.
    """

    host: bool = False
    gpus: frozenset[str] = frozenset()
    waits: frozenset[tuple[str, str]] = frozenset()


@dataclass(frozen=True)
class Step:
    """`kept` is for the next step. `told` are new signs, `over` the (kind, device) of states that have ended."""

    kept: dict[str, Any]
    told: list[Found]
    over: list[tuple[str, str]]


def step(kept: Kept, look: Look, *, log_is_read: bool, use: Use) -> Step:
    """What a look changes. `log_is_read`: the kernel's log says more about memory errors.

    After a reboot a state is told again; one for which something is out of use is over only after as many looks as
    ever. What people have left in use with a link down is not expected to have that link any more.
    """
    before: dict[str, Numbers] = dict(kept.get("numbers", {}))
    standing: dict[str, list[int]] = {name: list(looks) for name, looks in kept.get("standing", {}).items()}
    carried: dict[str, int] = dict(kept.get("carried", {}))
    if kept.get("boot") != look.boot:
        before = _expected(before, standing, use)
        carried = dict.fromkeys((name for name in _lasting(kept) if _is_out(name, use)), 0)
        standing = {}
    for device, uuid in kept.get("gpus", {}).items():
        if look.gpus.get(device, uuid) != uuid:
            before.pop(f"{measured.GPU} {device}", None)
    subjects = {**_vanished(before, look), **look.subjects}
    subjects = {name: each for name, each in subjects.items() if not 0 < each.get("late", 0) < _LATE_SECONDS}
    found: dict[str, Found] = {}
    for (kind, device), numbers in subjects.items():
        for state, text in STATES[kind](device, numbers, before.get(f"{kind} {device}", {}), log_is_read):
            found[f"{state} {device}"] = Found(state, device, text)
    standing = {name: looks for name, looks in standing.items() if _is_asked(name, look)}
    told, over, after = _counted(standing, found, subjects, look)
    kept_after = {
        "boot": look.boot,
        "numbers": _remembered(before, subjects),
        "standing": after,
        "denied": list(look.denied),
        "gpus": dict(list({**kept.get("gpus", {}), **look.gpus}.items())[-measured.MOST :]),
        "carried": {} if not carried else _carried_on(carried, found, after, subjects, look),
    }
    return Step(kept_after, told, over)


def rule_of(kind: str) -> Rule:
    return _RULES.get(kind, Rule())


def standing(kept: Kept) -> Iterator[tuple[str, str]]:
    """(kind, device) of the states that hold, or may be over since the last looks."""
    for name in {**kept.get("standing", {}), **kept.get("carried", {})}:
        yield _split(name)


def is_gone(kept: Kept, device: str) -> bool:
    """Whether a link with this name was there in this boot, or is missed since the one before."""
    return any(f"{kind} {device}" in kept.get("standing", {}) for kind in _GONE)


def _split(name: str) -> tuple[str, str]:
    kind, _, device = name.partition(" ")
    return kind, device


def _lasting(kept: Kept) -> list[str]:
    """The states that were told in this boot, or in the one before and not seen to be over."""
    told = [
        name for name, looks in kept.get("standing", {}).items() if looks[0] >= rule_of(_split(name)[0]).after
    ]
    return [*told, *kept.get("carried", {})]


def _expected(
    before: Mapping[str, Numbers], standing: Mapping[str, list[int]], use: Use
) -> dict[str, Numbers]:
    """What is remembered after a reboot: no counter of a GPU, no link that is gone or that people have left down."""
    after = {name: numbers for name, numbers in before.items() if _split(name)[0] != measured.GPU}
    for name, looks in standing.items():
        kind, device = _split(name)
        is_left = kind in _LEFT and not use.host and (kind, device) not in use.waits
        if kind in _GONE or (is_left and looks[0] >= rule_of(kind).after):
            after.pop(f"{kind.partition('_')[0]} {device}", None)
    return after


def _is_out(name: str, use: Use) -> bool:
    kind, device = _split(name)
    scope = verdicts.of(Sign(kind, 0, device)).scope
    return (scope == Scope.HOST and use.host) or (scope == Scope.GPU and device in use.gpus)


def _is_asked(name: str, look: Look) -> bool:
    """Folders may be taken from the settings."""
    kind, device = _split(name)
    return device in look.folders or not kind.startswith(("storage_", "folder_", "disk_"))


def _shows_end(name: str, subjects: Subjects) -> bool:
    """Whether a look without this state says that it is over."""
    kind, device = _split(name)
    for (_, each), numbers in subjects.items():
        if each == device:
            needed = _SHOWN_BY.get(kind)
            is_lost = numbers.get("lost") or numbers.get("reset") or numbers.get("gone")
            is_shown = needed is None or (numbers.get("up") == 1 if needed == "up" else needed in numbers)
            return not is_lost and is_shown
    return False


def _carried_on(
    carried: Mapping[str, int],
    found: Mapping[str, Found],
    standing: Mapping[str, list[int]],
    subjects: Subjects,
    look: Look,
) -> dict[str, int]:
    """For how many looks what stood before the reboot was not there. What was told again stands by itself."""
    after = {}
    for name, looks in carried.items():
        kind, device = _split(name)
        # it may have another name since the reboot, or have been removed
        is_gone = (
            measured.PORT in look.has and kind == "port_down" and (measured.PORT, device) not in look.subjects
        )
        if name in found:
            looks = 0
        elif is_gone or _shows_end(name, subjects):
            looks += 1
        is_told = standing.get(name, [0])[0] >= rule_of(kind).after
        if not is_told and looks < rule_of(kind).gone and _is_asked(name, look):
            after[name] = looks
    return after


def _counted(
    standing: Mapping[str, list[int]],
    found: Mapping[str, Found],
    subjects: Subjects,
    look: Look,
) -> tuple[list[Found], list[tuple[str, str]], dict[str, list[int]]]:
    """(new signs, what is over, what stands now). What could not be looked at stays as it was."""
    told, over, after = [], [], {}
    for name, each in found.items():
        looks = min(standing.get(name, [0, 0])[0] + 1, rule_of(each.kind).after)
        after[name] = [looks, 0]
        if looks == rule_of(each.kind).after and standing.get(name, [0, 0])[0] < looks:
            told.append(each)
    for name, (looks, missing) in standing.items():
        kind, _, device = name.partition(" ")
        if name in found:
            continue
        if not _shows_end(name, subjects) and not (kind == "run_left" and measured.RUN in look.has):
            after[name] = [looks, missing]
        elif looks >= rule_of(kind).after and missing + 1 < rule_of(kind).gone:
            after[name] = [looks, missing + 1]
        elif looks >= rule_of(kind).after:
            over.append((kind, device))
    return told, over, after


def _vanished(before: Mapping[str, Numbers], look: Look) -> dict[tuple[str, str], Numbers]:
    """Links that were up and are not there any more."""
    found: dict[tuple[str, str], Numbers] = {}
    for name, numbers in before.items():
        kind, _, device = name.partition(" ")
        seen = any((each, device) in look.subjects for each in (measured.PORT, measured.CARD))
        if kind in look.has and not seen and numbers.get("up"):
            found[kind, device] = {"gone": 1}
    return found


def _remembered(before: Mapping[str, Numbers], subjects: Subjects) -> dict[str, Numbers]:
    after = dict(before)
    for (kind, device), numbers in subjects.items():
        if kind not in _COUNTERS:
            continue
        known = dict(before.get(f"{kind} {device}", {}))
        known.update({name: numbers[name] for name in _COUNTERS[kind] if name in numbers})
        for name in _BEST.get(kind, ()):
            if numbers.get(name, 0) > known.get(name, 0):
                known[name] = numbers[name]
        after.pop(f"{kind} {device}", None)  # behind those that were not seen
        after[f"{kind} {device}"] = known
    return dict(list(after.items())[-_MOST_KNOWN:])
