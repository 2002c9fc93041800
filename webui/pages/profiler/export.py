"""All points behind the charts of a trial's Profiler page, as CSV."""

from __future__ import annotations

import re
from collections.abc import Generator

from django.http import HttpRequest, StreamingHttpResponse
from django.http.response import HttpResponseBase

from metrics import csv_files, sample_charts
from webui.pages.frame import page, refusing
from webui.pages.profiler import query
from webui.pages.trials import trial
from webui.waiting.threads import stepped


@page
@refusing
def samples(request: HttpRequest, trial_id: int) -> HttpResponseBase:
    """The charts that `chart` lists, of the `host`s: host, name, part, unit, time, low, high, mean.

    Points that are no longer kept stand as minutes.
    """
    found = trial.find(trial_id)
    charts = [sample_charts.parse(each) for each in query.charts(request.GET)]
    hosts = request.GET.getlist("host")
    return _file(f"trial-{found.pk}-{charts[0][0]}", csv_files.of_samples(found.task_id, charts, hosts))


@page
@refusing
def of_timings(request: HttpRequest, trial_id: int) -> HttpResponseBase:
    """All intervals of all timings, or of those of `rank`; seconds."""
    found = trial.find(trial_id)
    return _file(f"trial-{found.pk}-timings", csv_files.of_timings(found.task_id, query.rank(request.GET)))


def _file(name: str, blocks: Generator[bytes]) -> HttpResponseBase:
    response = StreamingHttpResponse(stepped(blocks), content_type="text/csv; charset=utf-8")
    safe = re.sub(r"[^A-Za-z0-9._-]+", "_", name)[:80]
    response["Content-Disposition"] = f'attachment; filename="{safe}.csv"'
    response["Cache-Control"] = "no-store"
    return response
