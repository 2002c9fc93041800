"""Joins timings of neighboring intervals into longer ones. Pure.

n, sums, least and most stay exact. Of quantiles only those of the parts are known, so they are estimated from above:
of each part half of its n are taken to lie at its median, up to 95 of 100 at its 95th percentile, and the rest at its
most. The result is never below the true quantile, never above the highest of the parts' own, exact where each part has
one value, and joining again keeps all of that.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain

import numpy as np
import numpy.typing as npt

from metrics.packing import Floats
from metrics.timing_frames import FIELDS, Frame, Frames

_N, _SUM, _MIN, _MAX, _P50, _P95 = range(len(FIELDS))
#: how much of a part's n lies at its median, at its 95th percentile, and at its most
_SHARES = np.array([0.5, 0.45, 0.05])
_PLACES = [_P50, _P95, _MAX]


def thinned(rank: int, parts: Sequence[Frames], seconds: float) -> list[Frame]:
    """One frame for each span of so many seconds in which something ended, in order of time.

    Where steps were taken again after a restart, frames of both attempts stay apart.
    """
    order, ends = _groups(parts, seconds)
    first_time, last_time, first_step, last_step = (
        np.concatenate([getattr(part, field) for part in parts])[order]
        for field in ("first_time", "last_time", "first_step", "last_step")
    )
    label = np.empty(len(order), dtype=np.intp)  # of each frame in the order of `parts`, its group
    label[order] = np.repeat(np.arange(len(ends)), np.diff(ends, prepend=0))
    timed, counted = _by_group(parts, label, len(ends))
    frames = []
    for group, (start, end) in enumerate(zip(chain([0], ends[:-1]), ends, strict=True)):
        own, sums = timed[group], counted[group]
        frames.append(
            Frame(
                rank,
                float(first_time[start:end].min()),
                float(last_time[end - 1]),
                int(first_step[start:end].min()),
                int(last_step[start:end].max()),
                tuple(own),
                np.array(list(own.values()), dtype=np.float32).reshape(-1, len(FIELDS)),
                tuple(sums),
                np.array(list(sums.values()), dtype=np.float32),
            )
        )
    return frames


def _groups(parts: Sequence[Frames], seconds: float) -> tuple[npt.NDArray[np.intp], npt.NDArray[np.intp]]:
    """All frames in order of time, and where in it each group ends."""
    last_time = np.concatenate([part.last_time for part in parts])
    order = np.argsort(last_time, kind="stable")
    first_step, last_step = (
        np.concatenate([getattr(part, field) for part in parts])[order]
        for field in ("first_step", "last_step")
    )
    span = np.floor(last_time[order] / seconds)
    went_back = first_step[1:] < last_step[:-1]
    begins = np.flatnonzero((np.diff(span) != 0) | went_back) + 1
    return order, np.append(begins, len(order))


def _by_group(
    parts: Sequence[Frames], label: npt.NDArray[np.intp], groups: int
) -> tuple[list[dict[str, Floats]], list[dict[str, float]]]:
    """Return the timings (FIELDS) and the counts of each group, by name."""
    timed: dict[str, list[tuple[npt.NDArray[np.intp], Floats]]] = {}
    counted: dict[str, list[tuple[npt.NDArray[np.intp], Floats]]] = {}
    start = 0
    for part in parts:
        own = label[start : start + len(part.last_time)]
        start += len(own)
        for index, name in enumerate(part.names):
            timed.setdefault(name, []).append((own, part.values[:, index].astype(np.float64)))
        for index, name in enumerate(part.counted):
            counted.setdefault(name, []).append((own, part.counts[:, index].astype(np.float64)))
    rows: list[dict[str, Floats]] = [{} for _ in range(groups)]
    sums: list[dict[str, float]] = [{} for _ in range(groups)]
    for name, found in timed.items():
        for group, values in _runs(found):
            rows[group][name] = _joined(values)
    for name, found in counted.items():
        for group, values in _runs(found):
            sums[group][name] = float(values.sum())
    return rows, sums


def _runs(found: Sequence[tuple[npt.NDArray[np.intp], Floats]]) -> list[tuple[int, Floats]]:
    """What is of one group, group after group."""
    labels = np.concatenate([own for own, _ in found])
    values = np.concatenate([each for _, each in found])
    order = np.argsort(labels, kind="stable")
    labels, values = labels[order], values[order]
    begins = np.concatenate([[0], np.flatnonzero(np.diff(labels)) + 1])
    return list(zip(labels[begins].tolist(), np.split(values, begins[1:]), strict=True))


def _joined(rows: Floats) -> Floats:
    """Combine rows of FIELDS into one."""
    joined = np.empty(len(FIELDS))
    joined[_N], joined[_SUM] = rows[:, _N].sum(), rows[:, _SUM].sum()
    joined[_MIN], joined[_MAX] = rows[:, _MIN].min(), rows[:, _MAX].max()
    if len(rows) == 1:
        joined[[_P50, _P95]] = rows[0, [_P50, _P95]]
        return joined
    values = rows[:, _PLACES].ravel()
    order = np.argsort(values)
    reached = np.cumsum((rows[:, [_N]] * _SHARES).ravel()[order]) / joined[_N]
    # what rounding takes from the sum must not push a quantile to the next value
    places = np.searchsorted(reached, np.array([0.5, 0.95]) - 1e-9)
    joined[[_P50, _P95]] = values[order][places]
    return joined
