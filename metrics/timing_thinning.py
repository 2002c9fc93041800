"""Joins timings of neighboring intervals into longer ones. Pure.

n, sums, least and most stay exact. Of quantiles only those of the parts are known, so they are estimated from above:
of each part half of its n are taken to lie at its median, up to 95 of 100 at its 95th percentile, and the rest at its
most. The result is never below the true quantile, never above the highest of the parts' own, exact where each part has
one value, and joining again keeps all of that.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
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
    order = np.argsort(np.concatenate([part.last_time for part in parts]), kind="stable")
    first_time, last_time, first_step, last_step = (
        np.concatenate([getattr(part, field) for part in parts])[order]
        for field in ("first_time", "last_time", "first_step", "last_step")
    )
    went_back = first_step[1:] < last_step[:-1]
    begins = np.flatnonzero((np.diff(np.floor(last_time / seconds)) != 0) | went_back) + 1
    ends = np.append(begins, len(order))  # where in the order of time each group ends
    label = np.empty(len(order), dtype=np.intp)  # of each frame in the order of `parts`, its group
    label[order] = np.repeat(np.arange(len(ends)), np.diff(ends, prepend=0))
    labels = np.split(label, np.cumsum([len(part.last_time) for part in parts])[:-1])
    timed = _by_group([(part.names, part.values) for part in parts], labels, len(ends))
    counted = _by_group([(part.counted, part.counts) for part in parts], labels, len(ends))
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
                np.array([_joined(rows) for rows in own.values()], dtype=np.float32).reshape(-1, len(FIELDS)),
                tuple(sums),
                np.array([values.sum() for values in sums.values()], dtype=np.float32),
            )
        )
    return frames


def _by_group(
    columns: Iterable[tuple[tuple[str, ...], npt.NDArray[np.float32]]],
    labels: Sequence[npt.NDArray[np.intp]],
    groups: int,
) -> list[dict[str, Floats]]:
    """Return the values of each group by name; `columns` are the names and values of each part, `labels` its groups."""
    found: dict[str, list[tuple[npt.NDArray[np.intp], Floats]]] = {}
    for (names, values), own in zip(columns, labels, strict=True):
        for index, name in enumerate(names):
            found.setdefault(name, []).append((own, values[:, index].astype(np.float64)))
    grouped: list[dict[str, Floats]] = [{} for _ in range(groups)]
    for name, each in found.items():
        for group, of_group in _runs(each):
            grouped[group][name] = of_group
    return grouped


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
