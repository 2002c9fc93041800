"""All points behind the charts of a trial's Profiler page, as CSV."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Collection, Generator, Iterable, Sequence
from datetime import UTC, datetime

from django.http import HttpRequest, StreamingHttpResponse
from django.http.response import HttpResponseBase

from metrics import sample_charts, timings
from metrics import samples as measured
from webui.downloads.logs import stepped
from webui.pages.frame import page, refusing
from webui.pages.profiler import query
from webui.pages.trials import trial

_ALL = 10**9
_LINES = 5000
_TIMING_FIELDS = ("count", "total_seconds", "mean", "low", "high", "p50", "p95")


@page
@refusing
def samples(request: HttpRequest, trial_id: int) -> HttpResponseBase:
    """The charts that `chart` lists, of the `host`s: host, name, part, unit, time, low, high, mean.

    Points that are no longer kept stand as minutes.
    """
    found = trial.find(trial_id)
    charts = [sample_charts.parse(each) for each in query.charts(request.GET)]
    hosts = request.GET.getlist("host")
    return _file(f"trial-{found.pk}-{charts[0][0]}", _samples(found.task_id, charts, hosts))


def _samples(task_id: str, charts: Sequence[tuple[str, str]], hosts: Collection[str]) -> Generator[bytes]:
    yield _written([["host", "name", "part", "unit", "time", "low", "high", "mean"]])
    for name, host in charts:
        for each in [host] if host else hosts:
            for one in measured.of_task(task_id, [name], hosts=[each], points=_ALL):
                columns = (one.times.tolist(), one.low.tolist(), one.high.tolist(), one.mean.tolist())
                rows = [
                    [one.host, one.name, one.part, one.metric.unit, _spelt(at), *values]
                    for at, *values in zip(*columns, strict=True)
                ]
                yield from _blocks(rows)


@page
@refusing
def of_timings(request: HttpRequest, trial_id: int) -> HttpResponseBase:
    """All intervals of all timings, or of those of `rank`; seconds."""
    found = trial.find(trial_id)
    return _file(f"trial-{found.pk}-timings", _timings(found.task_id, query.rank(request.GET)))


def _timings(task_id: str, rank: int | None) -> Generator[bytes]:
    fields = ("count", "seconds", "mean", "min", "max", "p50", "p95")
    yield _written([["rank", "name", "first_step", "last_step", "time", *fields]])
    ranks = [rank] if rank is not None else timings.ranks_of(task_id)
    for each in ranks:
        for one in timings.of_task(task_id, ranks=[each], points=_ALL):
            columns = [getattr(one, field).tolist() for field in _TIMING_FIELDS]
            rows = [
                [one.rank, one.name, int(first), int(last), _spelt(at), int(count), *values]
                for first, last, at, count, *values in zip(
                    one.first_steps.tolist(), one.steps.tolist(), one.times.tolist(), *columns, strict=True
                )
            ]
            yield from _blocks(rows)


def _blocks(rows: Sequence[Sequence[object]]) -> Generator[bytes]:
    for begin in range(0, len(rows), _LINES):
        yield _written(rows[begin : begin + _LINES])


def _spelt(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).isoformat(timespec="milliseconds")


def _written(rows: Iterable[Sequence[object]]) -> bytes:
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows(rows)
    return text.getvalue().encode()


def _file(name: str, blocks: Generator[bytes]) -> HttpResponseBase:
    response = StreamingHttpResponse(stepped(blocks), content_type="text/csv; charset=utf-8")
    safe = re.sub(r"[^A-Za-z0-9._-]+", "_", name)[:80]
    response["Content-Disposition"] = f'attachment; filename="{safe}.csv"'
    response["Cache-Control"] = "no-store"
    return response
