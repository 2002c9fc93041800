"""What Determined's profilers send and ask for, in their names and units (features.md 5), as samples and timings.

Until 0.29 batches of one series each, with net throughput in Gbit/s and free memory in GB; since then groups of metrics
without a step, named `gpu`, `cpu`, `memory`, `disk` and `network`, nested by host and GPU.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from jobs.models import Member
from metrics import sample_store, samples, timing_store, timings
from metrics.names import METRICS, RANK

SYSTEM, TIMING, MISC = (f"PROFILER_METRIC_TYPE_{kind}" for kind in ("SYSTEM", "TIMING", "MISC"))
#: groups of metrics that a profiler reports
GROUPS = frozenset({"gpu", "cpu", "memory", "disk", "network"})
#: of a host that a profiler names
NAME_CHARACTERS = 128
_PER_SECOND = "_per_second"
_GBIT, _GB = 1e9 / 8, 1e9
#: name in batches -> ours, and how many of our units one of theirs is
_OURS = {
    "gpu_free_memory": ("gpu_memory_free", 1.0),
    "free_memory": ("memory_free", _GB),
    "net_throughput_sent": ("net_throughput_sent", _GBIT),
    "net_throughput_recv": ("net_throughput_recv", _GBIT),
}
_THEIRS = {ours: (theirs, unit) for theirs, (ours, unit) in _OURS.items()}


class Labels(NamedTuple):
    """Which series: `gpu` is a UUID, empty where there is none; `kind` one of SYSTEM, TIMING, MISC."""

    name: str
    host: str
    gpu: str
    kind: str


class Batch(NamedTuple):
    """Points of one series: values, steps and times (epoch seconds), equally many of each."""

    labels: Labels
    values: list[float]
    steps: list[int]
    times: list[float]


def store(task_id: str, batch: Batch) -> None:
    """Keep a batch that a profiler sent, in the caller's transaction. What hosts do not measure here is left out."""
    name, host, gpu, kind = batch.labels
    if kind == SYSTEM:
        ours, unit = _OURS.get(name, (name, 1.0))
        column = f"{ours}/{gpu}" if gpu else ours
        values = [value * unit for value in batch.values]
        _store_samples(task_id, host, {"t": batch.times, "v": {column: values}})
        return
    points = zip(batch.values, batch.steps, batch.times, strict=True)
    timing_store.store(task_id, host, [_record(name, kind, *point) for point in points])


def _record(name: str, kind: str, value: float, step: int, at: float) -> dict[str, Any]:
    """As a rank of ours ships it; a rate is what was counted in the second before."""
    record: dict[str, Any] = {"r": 0, "t": [at - 1, at], "s": [step, step]}
    if kind == MISC:
        return {**record, "c": {name.removesuffix(_PER_SECOND): value}}
    same = dict.fromkeys(("sum", "min", "max", "p50", "p95"), value)
    return {**record, "t": [at - value, at], "v": {name: {"n": 1, **same}}}


def store_group(task_id: str, values: Mapping[str, Any], at: float) -> None:
    """Keep a report of one of GROUPS, `{host: {name: value or {GPU: …}}}`, in the caller's transaction.

    Raises ValueError, with a sentence, for what is no host's name.
    """
    for host in values:
        if not 0 < len(host) <= NAME_CHARACTERS or not host.isprintable():
            raise ValueError(
                f"{host[:40]!r} is not a host name; allowed: 1 to {NAME_CHARACTERS} printable characters."
            )
    for host, record in _hosts_in(values, at):
        _store_samples(task_id, host, record)


def _store_samples(task_id: str, host: str, record: Mapping[str, Any]) -> None:
    """As of one of our hosts only where the task has run there: nobody writes what stands on other hosts' pages."""
    members = Member.objects.filter(allocation__task_id=task_id, host__name=host)
    known = members.values_list("host_id", flat=True).first()
    host_id = known or uuid.uuid5(uuid.NAMESPACE_DNS, host or "unknown")
    sample_store.store(task_id, host_id, host, [record])


def _hosts_in(values: Mapping[str, Any], at: float) -> Iterator[tuple[str, dict[str, Any]]]:
    for host, measured in values.items():
        columns: dict[str, list[float]] = {}
        for name, value in measured.items() if isinstance(measured, Mapping) else ():
            parts = value.items() if isinstance(value, Mapping) else [(name, value)]
            for inner, number in parts:
                ours = "gpu_memory_free" if inner == "gpu_free_memory" else inner
                columns[f"{ours}/{name}" if isinstance(value, Mapping) else ours] = [number]
        if columns:
            yield host, {"t": [at], "v": columns}


def series_of(task_id: str) -> list[Labels]:
    """All series that can be read of a task. Timings are rank 0's, as a profiler's were."""
    found = [
        Labels(_THEIRS.get(name, (name, 1.0))[0], host, part, SYSTEM)
        for host, name, part in samples.columns_of_task(task_id)
        if METRICS[name].part_is != RANK
    ]
    return [*found, *(each.labels for each in _timed(task_id, 1))]


def read(task_id: str, wanted: Labels, after: Mapping[Labels, float], most: int) -> list[Batch]:
    """Points later than what `after` says of their series (epoch seconds); an empty word of `wanted` means any.

    A series has at most `most` points; where that is less than there are, each is the mean of neighbors.
    """
    found = _system(task_id, wanted, after, most) if wanted.kind in ("", SYSTEM) else []
    if wanted.kind == SYSTEM:
        return found
    found += _timed(task_id, most)
    return [
        batch for each in found if _is_wanted(each.labels, wanted) and (batch := _later(each, after)).times
    ]


def _timed(task_id: str, points: int) -> Iterator[Batch]:
    """What rank 0 timed and counted."""
    known = timings.read(task_id, ranks=[0], points=points)
    host = known.hosts.get(0, "")
    for one in known.timings:
        labels = Labels(one.name, host, "", TIMING)
        yield Batch(labels, one.mean.tolist(), one.steps.astype(int).tolist(), one.times.tolist())
    for rate in known.counts:
        labels = Labels(rate.name + _PER_SECOND, host, "", MISC)
        steps, times = rate.steps.astype(int).tolist(), rate.times.tolist()
        yield Batch(labels, rate.per_second.tolist(), steps, times)


def _system(task_id: str, wanted: Labels, after: Mapping[Labels, float], most: int) -> list[Batch]:
    """Host by host: each ships when it can, so none's last point says what the others have sent."""
    hosts = (
        [wanted.host] if wanted.host else sorted({host for host, _, _ in samples.columns_of_task(task_id)})
    )
    found = (batch for host in hosts for batch in _of_host(task_id, host, wanted, after, most))
    return [batch for batch in found if batch.times]


def _of_host(
    task_id: str, host: str, wanted: Labels, after: Mapping[Labels, float], most: int
) -> Iterable[Batch]:
    names = None if not wanted.name else [_OURS.get(wanted.name, (wanted.name, 1.0))[0]]
    told = [at for labels, at in after.items() if labels.host == host and labels.kind == SYSTEM]
    first = min(told, default=None)
    for one in samples.of_task(task_id, names, hosts=[host], first_time=first, points=most):
        name, unit = _THEIRS.get(one.name, (one.name, 1.0))
        labels = Labels(name, one.host, one.part, SYSTEM)
        if one.metric.part_is != RANK and _is_wanted(labels, wanted):
            values, times = (one.mean / unit).tolist(), one.times.tolist()
            yield _later(Batch(labels, values, [0] * len(times), times), after)


def _is_wanted(labels: Labels, wanted: Labels) -> bool:
    return all(not asked or asked == own for asked, own in zip(wanted, labels, strict=True))


def _later(batch: Batch, after: Mapping[Labels, float]) -> Batch:
    told = after.get(batch.labels, 0.0)
    kept = [index for index, at in enumerate(batch.times) if at > told]
    if len(kept) == len(batch.times):
        return batch
    values, steps, times = batch.values, batch.steps, batch.times
    return Batch(
        batch.labels, [values[at] for at in kept], [steps[at] for at in kept], [times[at] for at in kept]
    )
