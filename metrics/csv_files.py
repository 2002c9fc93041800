"""All points of metrics, samples and timings as CSV, some thousand lines at a time; times are in UTC."""

from __future__ import annotations

from collections.abc import Collection, Generator, Iterable, Iterator, Sequence
from datetime import UTC, datetime
from itertools import islice

from metrics import samples, series, timings
from metrics.curves import Wanted
from metrics.values import number_or_name
from trainmaster import csv_text

LINES_PER_BLOCK = 5000
_ALL = 10**9
_TIMING_SPANS = ("first_steps", "steps", "times")
_TIMING_FIELDS = ("count", "total_seconds", "mean", "low", "high", "p50", "p95")


def of_metrics(trial_id: int, wanted: Sequence[Wanted]) -> Generator[bytes]:
    """Each metric by step; NaN and infinities by name."""
    yield _bytes([["group", "metric", "step", "time", "value"]])
    for one in wanted:
        for each in series.read(trial_id, one.group, [one.name], points=_ALL):
            columns = (each.steps.tolist(), each.times.tolist(), each.values.tolist())
            yield from _blocks(
                [one.group, one.name, int(step), _spelt(at, "auto"), number_or_name(value)]
                for step, at, value in zip(*columns, strict=True)
            )


def of_samples(task_id: str, charts: Sequence[tuple[str, str]], hosts: Collection[str]) -> Generator[bytes]:
    """The samples of (name, host) charts; a chart without a host has those of all hosts."""
    yield _bytes([["host", "name", "part", "unit", "time", "low", "high", "mean"]])
    for name, host in charts:
        for each in [host] if host else hosts:
            for one in samples.of_task(task_id, [name], hosts=[each], points=_ALL):
                columns = (one.times.tolist(), one.low.tolist(), one.high.tolist(), one.mean.tolist())
                yield from _blocks(
                    [one.host, one.name, one.part, one.metric.unit, _spelt(at), *values]
                    for at, *values in zip(*columns, strict=True)
                )


def of_timings(task_id: str, rank: int | None) -> Generator[bytes]:
    """All intervals of a rank, or of all ranks."""
    fields = ("count", "seconds", "mean", "min", "max", "p50", "p95")
    yield _bytes([["rank", "name", "first_step", "last_step", "time", *fields]])
    ranks = [rank] if rank is not None else timings.ranks_of(task_id)
    for each in ranks:
        for one in timings.read(task_id, ranks=[each], points=_ALL).timings:
            columns = [getattr(one, field).tolist() for field in (*_TIMING_SPANS, *_TIMING_FIELDS)]
            yield from _blocks(
                [one.rank, one.name, int(first), int(last), _spelt(at), int(count), *values]
                for first, last, at, count, *values in zip(*columns, strict=True)
            )


def _blocks(rows: Iterator[Sequence[object]]) -> Generator[bytes]:
    while block := list(islice(rows, LINES_PER_BLOCK)):
        yield _bytes(block)


def _spelt(at: float, timespec: str = "milliseconds") -> str:
    return datetime.fromtimestamp(at, UTC).isoformat(timespec=timespec)


def _bytes(rows: Iterable[Sequence[object]]) -> bytes:
    return csv_text.lines(rows).encode()
