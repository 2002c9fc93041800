"""Reads reported metrics as series, reduced to what a chart can show without losing an extreme."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from operator import itemgetter

import numpy as np
import numpy.typing as npt

from metrics import chunks
from metrics.models import Group
from metrics.packing import Floats, Integers
from metrics.table import Flags

DEFAULT_POINTS = 1000
#: trials that are read at once
_TOGETHER = 20


@dataclass(frozen=True)
class Series:
    """One metric over steps. `total` counts the points before reduction; x ascends; y may hold NaN and inf."""

    name: str
    steps: Floats
    values: Floats
    times: Floats  # epoch seconds of the report
    total: int

    @property
    def is_reduced(self) -> bool:
        return len(self.steps) < self.total


def groups(trial_id: int) -> list[str]:
    """Groups with live reports, by name."""
    return list(Group.objects.filter(trial_id=trial_id, reports__gt=0).values_list("name", flat=True))


def names(*trial_ids: int) -> dict[str, list[str]]:
    """The metrics of each group of which any of the trials has live reports, by name, without reading their values."""
    live = Group.objects.filter(trial_id__in=trial_ids, chunks__archived=False)
    rows = live.values_list("name", "chunks__names").distinct()
    found: dict[str, set[str]] = {}
    for group, some in rows:
        found.setdefault(group, set()).update(some)
    return {group: sorted(found[group]) for group in sorted(found)}


def read(
    trial_id: int,
    group: str,
    names: Sequence[str] | None = None,
    *,
    first_step: int | None = None,
    last_step: int | None = None,
    points: int = DEFAULT_POINTS,
) -> list[Series]:
    """The live series of a group, by name; `names` None means all that hold numbers.

    Steps are limited to first_step <= step <= last_step, and each series to about `points` points.
    """
    where = "metric_group.trial_id = %s AND metric_group.name = %s"
    rows = chunks.live(where, [trial_id, group], names, first_step, last_step)
    heads, columns = _parts(rows, first_step, last_step)
    wanted = sorted(columns) if names is None else [name for name in names if name in columns]
    found = [_series(name, heads, columns[name], points) for name in wanted]
    return [each for each in found if each.total]


def of_trials(
    trial_ids: Sequence[int],
    group: str,
    name: str,
    *,
    first_step: int | None = None,
    last_step: int | None = None,
    points: int = DEFAULT_POINTS,
) -> dict[int, Series]:
    """One metric of many trials, by trial, limited as in `read`; those without a report of it there are left out."""
    found = each_of_trials(trial_ids, group, name, first_step=first_step, last_step=last_step, points=points)
    return dict(found)


def each_of_trials(
    trial_ids: Sequence[int],
    group: str,
    name: str,
    *,
    first_step: int | None = None,
    last_step: int | None = None,
    points: int = DEFAULT_POINTS,
) -> Iterator[tuple[int, Series]]:
    """The series of `of_trials`, by trial: in memory are the chunks of _TOGETHER trials, unpacked those of one."""
    where, ids = "metric_group.trial_id = ANY(%s) AND metric_group.name = %s", sorted(trial_ids)
    for start in range(0, len(ids), _TOGETHER):
        some = ids[start : start + _TOGETHER]
        rows = chunks.live(where, [some, group], [name], first_step, last_step)
        for trial_id, of_trial in groupby(rows, key=itemgetter(0)):
            heads, columns = _parts(of_trial, first_step, last_step)
            each = _series(name, heads, columns[name], points)
            if each.total:
                yield trial_id, each


Head = tuple[Integers, Integers, slice]  # steps, times in microseconds, rows inside the window
Part = tuple[int, Floats, Flags | None]  # number of the head, values, which reports have one


def _parts(
    rows: Iterable[chunks.Row], first: int | None, last: int | None
) -> tuple[list[Head], dict[str, list[Part]]]:
    heads: list[Head] = []
    columns: dict[str, list[Part]] = {}
    for _, _, count, head, some in rows:
        steps, times, _ = chunks.unpack_head(head, count)
        heads.append((steps, times, window(steps, first, last)))
        for name, data in some:
            columns.setdefault(name, []).append((len(heads) - 1, *chunks.unpack_numbers(data, count)))
    return heads, columns


def window(steps: Integers, first: int | None, last: int | None) -> slice:
    """The rows of first <= step <= last."""
    begin = 0 if first is None else int(np.searchsorted(steps, first))
    return slice(begin, len(steps) if last is None else int(np.searchsorted(steps, last, "right")))


def _series(name: str, heads: Sequence[Head], parts: Sequence[Part], limit: int) -> Series:
    steps, times, values = [], [], []
    for number, numbers, present in parts:
        all_steps, all_times, window = heads[number]
        if present is None:
            numbers = numbers[window]
            steps.append(all_steps[window])
            times.append(all_times[window])
        else:
            numbers = numbers[present[: window.start].sum() :][: present[window].sum()]
            steps.append(all_steps[window][present[window]])
            times.append(all_times[window][present[window]])
        values.append(numbers)
    joined = np.concatenate(values)
    kept = envelope(joined, limit)
    return Series(
        name,
        np.concatenate(steps)[kept].astype(np.float64),
        joined[kept],
        np.concatenate(times)[kept] / 1e6,
        len(joined),
    )


def envelope(values: Floats, points: int) -> npt.NDArray[np.intp]:
    """Indices, ascending, of at most about `points` values that keep the picture.

    The values are cut into equal runs; of each its lowest and highest finite value stay, and the first of its NaN and
    of its infinities, so that gaps stay gaps. The first and the last value always stay. Raises ValueError for fewer
    than 4 points.
    """
    if points < 4:
        raise ValueError(f"A series cannot be reduced to {points} points; allowed: 4 or more.")
    count = len(values)
    if count <= points:
        return np.arange(count)
    odd = [mask for mask in (np.isnan(values), values == np.inf, values == -np.inf) if mask.any()]
    runs = max(1, (points - 2) // (2 + len(odd)))
    width = -(-count // runs)
    runs = -(-count // width)
    start = np.arange(runs) * width
    finite = values if not odd else np.where(np.isfinite(values), values, np.nan)
    kept = [np.array([0, count - 1])]
    for worst, pick in ((np.inf, np.argmin), (-np.inf, np.argmax)):
        table = np.full(runs * width, worst)
        table[:count] = finite if not odd else np.where(np.isnan(finite), worst, finite)
        kept.append(start + pick(table.reshape(runs, width), axis=1))
    for mask in odd:
        table = np.zeros(runs * width, np.bool_)
        table[:count] = mask
        rows = table.reshape(runs, width)
        kept.append((start + rows.argmax(axis=1))[rows.any(axis=1)])
    chosen: npt.NDArray[np.intp] = np.unique(np.concatenate(kept))
    return chosen[chosen < count].astype(np.intp)
