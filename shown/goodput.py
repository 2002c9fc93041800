"""What the time of held slots went to, in words: by user, pool, experiment, period, and of one trial."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from django.utils import timezone

from dispatch.keeping import goodput
from dispatch.keeping.goodput import Group, WentTo
from dispatch.keeping.usage import Periods
from experiments.models import Experiment, Trial
from jobs import time_parts
from jobs.states import Reason

GROUPS: dict[str, Group] = {"pool": "pool", "user": "user", "experiment": "experiment", "total": "total"}
#: the part of steps done again, whichever stop they follow
AGAIN = time_parts.AGAIN.rstrip(":")
#: part -> its words, in the order in which they are shown
WORDS = {
    time_parts.PROGRESS: "New progress",
    AGAIN: "Steps done again",
    time_parts.CHECKPOINT: "Checkpoints",
    time_parts.GANG: "Waiting for the gang",
    time_parts.START: "Start and load",
    time_parts.SLOW: "Slow rank",
    time_parts.STALLED: "Stalled",
    time_parts.IDLE: "Idle GPUs",
    time_parts.END: "After the last report",
    time_parts.NOT_TOLD: "Not told",
}
#: all parts that there may be, of steps done again one for each reason of an end
PARTS = [part for part in WORDS if part != AGAIN] + [time_parts.AGAIN + reason for reason in Reason.values]
#: So many users, pools or experiments are shown, the largest; the others as one.
MOST_LINES = 100
_ORDER = list(WORDS)
_STOPS = dict(Reason.choices)
_NAMELESS = {"experiment": "commands and other tasks", "total": "all slots"}


class Piece(NamedTuple):
    """`stop`: the reason code of the end after which the steps were done again. `percent`: of the time held."""

    part: str
    stop: str
    word: str
    seconds: float
    percent: float


@dataclass(frozen=True)
class Told:
    """Slot-seconds, and what they went to.

    `progress` is the share that was new progress, of all that is told; None: nobody knows.
    """

    seconds: float
    progress: float | None
    pieces: list[Piece]

    @property
    def hours(self) -> float:
        return self.seconds / 3600

    @property
    def untold(self) -> float:
        return sum(each.seconds for each in self.pieces if each.part == time_parts.NOT_TOLD)

    @property
    def known(self) -> float:
        return self.seconds - self.untold

    @property
    def losses(self) -> list[Piece]:
        """The parts that were no progress, the largest first."""
        return sorted(
            (each for each in self.pieces if each.part != time_parts.PROGRESS), key=lambda one: -one.seconds
        )


@dataclass(frozen=True)
class Line(Told):
    """Of a user, pool or experiment. `key`: the experiment's id, or the name."""

    key: str = ""
    name: str = ""
    href: str = ""
    #: of each period in order, slot-seconds by part
    by_period: Mapping[str, Mapping[str, float]] = field(default_factory=dict)

    @property
    def periods(self) -> list[tuple[str, Told]]:
        return [(name, told(parts)) for name, parts in self.by_period.items()]


class Top(NamedTuple):
    """All slots; the largest lines; and the others, how many and as one."""

    total: Line | None
    lines: list[Line]
    more: int
    rest: Line | None


def lines(periods: Periods, group: str) -> list[Line]:
    """Who held slots in these periods and what for, the most slot-seconds first."""
    return _lines(goodput.sums(periods, GROUPS[group]), group, periods)


def top(periods: Periods, group: str, most: int = MOST_LINES, *, each_period: bool = True) -> Top:
    """Unless `each_period`, only the total has periods."""
    found = goodput.largest(periods, GROUPS[group], most, each_period=each_period)
    total, rest = (
        _line(one, "total", periods, {}) if one and one.seconds else None for one in (found.total, found.rest)
    )
    return Top(total, _lines(found.lines, group, periods), found.more, rest)


def _lines(found: list[WentTo], group: str, periods: Periods) -> list[Line]:
    names = _experiments(found) if group == "experiment" else {}
    return [_line(each, group, periods, names) for each in found]


def of_trial(trial: Trial) -> Told | None:
    """None for a detached run, which holds no slots."""
    if trial.experiment.unmanaged:
        return None
    periods = Periods("day", trial.started_at.date(), timezone.now().date())
    return told(goodput.of_task(trial.task_id, periods).parts)


def told(parts: Mapping[str, float]) -> Told:
    seconds = sum(parts.values())
    untold, progress = parts.get(time_parts.NOT_TOLD, 0.0), parts.get(time_parts.PROGRESS, 0.0)
    is_known = seconds > untold and (
        progress > 0 or not untold
    )  # else the progress may be in what is not told
    share = progress / (seconds - untold) if is_known else None
    return Told(seconds, share, [_piece(part, amount, seconds) for part, amount in _sorted(parts)])


def _sorted(parts: Mapping[str, float]) -> list[tuple[str, float]]:
    shown = [(part, amount) for part, amount in parts.items() if amount > 0]
    return sorted(shown, key=lambda one: (_ORDER.index(_kind(one[0])), -one[1], one[0]))


def _kind(part: str) -> str:
    return part.partition(":")[0]


def _piece(part: str, seconds: float, whole: float) -> Piece:
    kind, _, stop = part.partition(":")
    word = f"{WORDS[kind]}: {_STOPS.get(stop, stop)}" if stop else WORDS[kind]
    return Piece(kind, stop, word, seconds, 100 * seconds / whole)


def _line(found: WentTo, group: str, periods: Periods, names: Mapping[str, str]) -> Line:
    all_of_it = told(found.parts)
    title = names.get(found.name)
    href = f"/experiments/{found.name}" if title is not None else ""
    name = found.name if group != "experiment" or not found.name else f"{found.name} {title or '(deleted)'}"
    return Line(
        all_of_it.seconds,
        all_of_it.progress,
        all_of_it.pieces,
        key=found.name,
        name=name or _NAMELESS.get(group, ""),
        href=href,
        by_period={name: found.by_period[name] for name in periods.names if name in found.by_period},
    )


def _experiments(found: list[WentTo]) -> dict[str, str]:
    """Id -> name of those that are still there."""
    ids = [int(each.name) for each in found if each.name]
    return {str(pk): name for pk, name in Experiment.objects.filter(pk__in=ids).values_list("pk", "name")}
