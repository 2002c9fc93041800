"""Which jobs ran on a host when: spans with a link each, drawn on a lane per slot."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from django.contrib.postgres.aggregates import ArrayAgg
from django.db.models import F, Q
from django.utils import timezone

from hosts.models import Host
from jobs.models import Member
from shown.hosts.occupancy import HOLDER_FIELDS, Holder, holder_of, slots_in_words

#: the newest; a page of more would be none
MOST = 200
#: of the drawing, whose width is the range and which is stretched to the page
WIDTH, LANE = 1000, 14


@dataclass(frozen=True)
class Run:
    """One gang member. `ended_at` None: it goes on."""

    holder: Holder
    slots: list[int]
    started_at: datetime
    ended_at: datetime | None

    @property
    def where(self) -> str:
        return slots_in_words(sorted(self.slots)) if self.slots else "no slot"

    @property
    def seconds(self) -> float:
        return ((self.ended_at or timezone.now()) - self.started_at).total_seconds()


@dataclass(frozen=True)
class Bar:
    """A run on neighbouring slots, in units of the drawing."""

    run: Run
    x: float
    y: int
    width: float
    height: int


@dataclass(frozen=True)
class Lanes:
    bars: list[Bar]
    #: the slots, top to bottom, and where the line of each is
    slots: list[tuple[int, int]]
    marks: list[tuple[str, float]]

    @property
    def height(self) -> int:
        return LANE * len(self.slots)


def of(host: Host, first_time: float, last_time: float) -> list[Run]:
    """What held slots of the host, or ran there without, between two times (epoch seconds); the newest first."""
    first, last = (datetime.fromtimestamp(at, UTC) for at in (first_time, last_time))
    rows = (
        Member.objects.filter(Q(ended_at=None) | Q(ended_at__gte=first), host=host)
        .filter(allocation__assigned_at__lte=last)
        .annotate(held=ArrayAgg("holds__slot__index", filter=Q(holds__isnull=False), default=[]))
        .annotate(began=F("allocation__assigned_at"))
        .order_by("-began", "-pk")
    )
    fields = [name.format("") for name in HOLDER_FIELDS]
    return [
        Run(holder_of(tuple(rest)), list(held), began, ended)
        for held, began, ended, *rest in rows.values_list("held", "began", "ended_at", *fields)[:MOST]
    ]


def lanes(runs: Sequence[Run], slots: Sequence[int], first_time: float, last_time: float) -> Lanes:
    """The runs as bars over the range; what holds no slot is in words alone."""
    lane_of = {index: lane for lane, index in enumerate(sorted(slots))}
    scale = WIDTH / (last_time - first_time)
    bars = []
    for run in runs:
        begin = max(first_time, run.started_at.timestamp())
        end = min(last_time, run.ended_at.timestamp() if run.ended_at else last_time)
        x, width = (begin - first_time) * scale, max(2.0, (end - begin) * scale)
        for lane, count in _stretches([lane_of[index] for index in run.slots if index in lane_of]):
            bars.append(Bar(run, round(x, 1), LANE * lane, round(width, 1), LANE * count))
    middles = [(index, LANE * lane + LANE // 2) for index, lane in lane_of.items()]
    return Lanes(bars, middles, _marks(first_time, last_time))


def _stretches(places: list[int]) -> list[tuple[int, int]]:
    """(first, length) of neighbours."""
    found: list[tuple[int, int]] = []
    for place in sorted(places):
        if found and sum(found[-1]) == place:
            found[-1] = (found[-1][0], found[-1][1] + 1)
        else:
            found.append((place, 1))
    return found


def _marks(first_time: float, last_time: float) -> list[tuple[str, float]]:
    """(time in UTC, its place) of the ends and the quarters between."""
    span = last_time - first_time
    return [
        (datetime.fromtimestamp(first_time + span * quarter / 4, UTC).strftime("%H:%M"), WIDTH * quarter / 4)
        for quarter in range(5)
    ]
