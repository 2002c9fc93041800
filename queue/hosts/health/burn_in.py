"""What a burn-in measures, and what its figures mean beside those of other hosts. Pure.

Figures come from a program on a host, so they are claims: `read` takes what is a known measure with a plausible value.
They are compared with the median of other hosts that have the same device and were measured in the same way.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from statistics import mean, median
from typing import Any

from trainmaster.burn_in.bad_part import BAD, SLOW

#: so many other hosts are needed to say what is usual
LEAST_HOSTS = 3
_MOST = 1e15
_HOW_CHARACTERS = 160


@dataclass(frozen=True)
class Measure:
    """`what` people read of it. Without a unit it counts errors, of which there should be none."""

    what: str
    unit: str = ""


MEASURES = {
    "matmul": Measure("matrix products", "GFLOP/s"),
    "wrong_results": Measure("wrong results of matrix products"),
    "memory": Measure("memory bandwidth", "GB/s"),
    "wrong_memory": Measure("memory cells that did not keep their value"),
    "copy": Measure("copy bandwidth", "GB/s"),
    "copy_back": Measure("copy bandwidth from the GPU", "GB/s"),
    "all_reduce": Measure("all-reduce of all", "GB/s"),
    "pair_all_reduce": Measure("all-reduce by pair", "GB/s"),
    "disk_write": Measure("disk write rate", "MB/s"),
    "disk_read": Measure("disk read rate", "MB/s"),
}


@dataclass(frozen=True)
class Figure:
    """One result. `slot`: whose GPU it is about; None: the host. `device`: the GPU's model."""

    measure: str
    value: float
    how: str = ""
    device: str = ""
    slot: int | None = None

    @property
    def alike(self) -> tuple[str, str, str]:
        """Figures are compared only if this is the same."""
        return self.measure, self.how, self.device

    @property
    def is_host_rate(self) -> bool:
        """The speed of the host's processor, memory or disk. It also depends on what else runs there."""
        return self.slot is None and bool(MEASURES[self.measure].unit)

    @property
    def words(self) -> str:
        """`copy bandwidth 11 GB/s`."""
        known = MEASURES[self.measure]
        return f"{known.what} {self.value:.4g} {known.unit}".rstrip()


@dataclass(frozen=True)
class Compared:
    """A figure beside the median of `hosts` other hosts, which is None if they are too few."""

    figure: Figure
    median: float | None = None
    hosts: int = 0

    @property
    def is_slow(self) -> bool:
        """Whether people are told about it; errors of any number are."""
        return self._is_below(SLOW)

    @property
    def is_bad(self) -> bool:
        """Whether it is a reason to take the GPU or the host out of use; rates of a host are only told."""
        return not self.figure.is_host_rate and self._is_below(BAD)

    def _is_below(self, share: float) -> bool:
        if not MEASURES[self.figure.measure].unit:
            return self.figure.value > 0
        return self.median is not None and self.figure.value < share * self.median

    @property
    def sentence(self) -> str:
        """The evidence: `slot 3: copy bandwidth 11 GB/s, the median of 4 other hosts is 24 GB/s`."""
        where = "" if self.figure.slot is None else f"slot {self.figure.slot}: "
        if self.median is None:
            return f"{where}{self.figure.words}"
        usual = f"{self.median:.4g} {MEASURES[self.figure.measure].unit}"
        return f"{where}{self.figure.words}, the median of {self.hosts} other hosts is {usual}"


def read(told: object, slots: Collection[int]) -> Figure | None:
    """The figure in a record of the program, None if it is none. `slots`: those that it may speak of."""
    if not isinstance(told, dict) or told.get("measure") not in _NAMES:
        return None
    value, how, slot = told.get("value"), told.get("how", ""), told.get("slot")
    if isinstance(value, bool) or not isinstance(value, int | float) or not isinstance(how, str):
        return None
    if not 0 <= value <= _MOST or not is_of(slot, slots):
        return None
    return Figure(told["measure"], float(value), printable(how)[:_HOW_CHARACTERS], slot=slot)


#: a list, since what is asked for may be of a type that no set takes
_NAMES = list(MEASURES)


def is_of(slot: object, slots: Collection[int]) -> bool:
    """Whether it is None, for the host, or one of the slots."""
    return slot is None or (isinstance(slot, int) and not isinstance(slot, bool) and slot in slots)


def printable(text: str) -> str:
    """The text without what no page or database takes."""
    return "".join(letter for letter in text if letter.isprintable())


def compare(own: Sequence[Figure], others: Iterable[Sequence[Figure]]) -> list[Compared]:
    """Each of the host's figures beside the median of the other hosts; a host with several such GPUs counts once."""
    usual: dict[tuple[str, str, str], list[float]] = {}
    for figures in others:
        of_host: dict[tuple[str, str, str], list[float]] = {}
        for figure in figures:
            of_host.setdefault(figure.alike, []).append(figure.value)
        for alike, values in of_host.items():
            usual.setdefault(alike, []).append(mean(values))
    return [_compared(figure, usual.get(figure.alike, [])) for figure in own]


def _compared(figure: Figure, usual: Sequence[float]) -> Compared:
    if len(usual) < LEAST_HOSTS or not MEASURES[figure.measure].unit:
        return Compared(figure, None, len(usual))
    return Compared(figure, median(usual), len(usual))


def as_record(figure: Figure) -> dict[str, Any]:
    """As it is stored; `Figure(**record)` is it again."""
    return {
        "measure": figure.measure, "value": figure.value, "how": figure.how, "device": figure.device,
        "slot": figure.slot,
    }  # fmt: skip
