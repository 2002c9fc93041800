"""All that trials have reported, as the published SDK reads it: `trials/metrics/…` (features.md 11.5)."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from itertools import count
from typing import Annotated

from django.http import HttpRequest, HttpResponseBase
from pydantic import Field

from accounts.rights import Right
from experiments.models import Trial
from jobs.models import Allocation
from metrics import reported
from metrics.reported import Reported
from webui.api.answers import Answer, JsonLines, Time, time_text
from webui.api.async_views import Principal, async_view, ndjson, record
from webui.api.errors import BadRequest, Missing
from webui.api.views import Json
from webui.query import wholes
from webui.waiting.threads import reading


class ReportRecord(Answer):
    """One report of a trial."""

    id: Annotated[int, Field(description="its index in this answer")]
    trial_id: int
    trial_run_id: int
    group: str
    total_batches: int
    end_time: Time
    metrics: Annotated[
        Json, Field(description="{validation_metrics: {…}} of a validation, else {avg_metrics: {…}}")
    ]
    archived: bool


class Reports(Answer):
    metrics: list[ReportRecord]


@async_view("GET", Right.READ | Right.RUN, answer=JsonLines(Reports))
async def trial_metrics(request: HttpRequest, who: Principal) -> HttpResponseBase:
    """Reports of one group."""
    group = request.GET.get("group", "")
    if not group or "\x00" in group:
        raise BadRequest(
            f"group: {'is missing' if not group else 'is invalid'}; give a group, such as training."
        )
    return await _stream(request, who, group)


@async_view("GET", Right.READ | Right.RUN, answer=JsonLines(Reports))
async def training_metrics(request: HttpRequest, who: Principal) -> HttpResponseBase:
    """Reports of the group training."""
    return await _stream(request, who, "training")


@async_view("GET", Right.READ | Right.RUN, answer=JsonLines(Reports))
async def validation_metrics(request: HttpRequest, who: Principal) -> HttpResponseBase:
    """Reports of the group validation."""
    return await _stream(request, who, "validation")


async def _stream(request: HttpRequest, who: Principal, group: str) -> HttpResponseBase:
    ids = wholes(request.GET, "trialIds")
    await reading(_check, who, ids)

    async def answers() -> AsyncIterator[bytes]:
        numbers = count(1)  # a report has no number of its own
        for trial_id in sorted(set(ids)):
            for window in await reading(reported.windows, trial_id, group):
                part = await reading(_read, trial_id, group, window)
                yield record({"metrics": [encode_report(report, next(numbers)) for report in part]})

    return ndjson(answers())


def _read(trial_id: int, group: str, window: tuple[int, int]) -> list[Reported]:
    return list(reported.read([trial_id], [group], first_step=window[0], last_step=window[1]))


def _check(who: Principal, ids: Sequence[int]) -> None:
    """Raises BadRequest and Missing: each trial must exist, and be the run's own where a run asks."""
    if not ids:
        raise BadRequest("trialIds: missing; give at least one trial.")
    tasks = dict(Trial.objects.filter(pk__in=ids).values_list("pk", "task_id"))
    for trial_id in ids:
        if trial_id not in tasks or (isinstance(who, Allocation) and tasks[trial_id] != who.task_id):
            raise Missing(f"trial {trial_id} not found")


def encode_report(report: Reported, identity: int) -> Json:
    """A report as the published SDK knows it."""
    kind = "validation_metrics" if report.group == "validation" else "avg_metrics"
    return {
        "id": identity,
        "trialId": report.trial_id,
        "trialRunId": report.run_id,
        "group": report.group,
        "totalBatches": report.steps_completed,
        "endTime": time_text(report.reported_at),
        "metrics": {kind: report.values},
        "archived": False,
    }
