"""The runs of a host drawn on a lane per slot."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from shown.hosts.holders import HostRun

#: of the drawing, whose width is the range and which is stretched to the page
WIDTH, LANE = 1000, 14


@dataclass(frozen=True)
class Bar:
    """A run on neighboring slots, in units of the drawing."""

    run: HostRun
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


def of(runs: Sequence[HostRun], slots: Sequence[int], first_time: float, last_time: float) -> Lanes:
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
    """(first, length) of neighbors."""
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
