"""Logs as files: `/api/v1/{trials,tasks}/<id>/logs/raw` and `…/logs/archive`, beside the dialect.

Both take the filters of a log stream (`?rankIds=3`, `?rankIds=host:gpu-2&levels=ERROR`) and stream in bounded memory.
A download that fails on the way breaks off: it never looks complete.
"""

from __future__ import annotations

from collections.abc import AsyncIterator

from django.http import HttpRequest, HttpResponseBase, StreamingHttpResponse

from accounts.rights import Right
from logs.written import written
from shown.log_archive import archive
from webui.api.answers import Media
from webui.api.async_views import Principal, async_view
from webui.api.log_query import file_query
from webui.api.tasks import own_task, task_of_trial
from webui.waiting.threads import reading, release_thread, stepped


@async_view("GET", Right.READ | Right.RUN, answer=Media("text/plain"))
async def trial_logs_raw(request: HttpRequest, who: Principal, trial_id: int) -> HttpResponseBase:
    """The exact bytes of the chosen lines of a trial's log, without times and names."""
    return await _raw(request, await reading(task_of_trial, who, trial_id), f"trial_{trial_id}_logs")


@async_view("GET", Right.READ | Right.RUN, answer=Media("text/plain"))
async def task_logs_raw(request: HttpRequest, who: Principal, task_id: str) -> HttpResponseBase:
    """The exact bytes of the chosen lines of a task's log, without times and names."""
    return await _raw(request, await reading(own_task, who, task_id), f"task_{task_id}_logs")


@async_view("GET", Right.READ | Right.RUN, answer=Media("application/zip"))
async def trial_logs_archive(request: HttpRequest, who: Principal, trial_id: int) -> HttpResponseBase:
    """The chosen lines as a zip archive with a file for each rank and stream."""
    return await _archive(request, await reading(task_of_trial, who, trial_id), f"trial_{trial_id}_logs")


@async_view("GET", Right.READ | Right.RUN, answer=Media("application/zip"))
async def task_logs_archive(request: HttpRequest, who: Principal, task_id: str) -> HttpResponseBase:
    """The chosen lines as a zip archive with a file for each rank and stream."""
    return await _archive(request, await reading(own_task, who, task_id), f"task_{task_id}_logs")


async def _raw(request: HttpRequest, task_id: str, name: str) -> HttpResponseBase:
    filters = await reading(lambda: file_query(request.GET, task_id).filters())
    return as_file(stepped(written(task_id, filters)), f"{name}.txt", "text/plain; charset=utf-8")


async def _archive(request: HttpRequest, task_id: str, name: str) -> HttpResponseBase:
    filters = await reading(lambda: file_query(request.GET, task_id).filters())
    return as_file(stepped(archive(task_id, filters, name)), f"{name}.zip", "application/zip")


def as_file(parts: AsyncIterator[bytes], name: str, content_type: str) -> StreamingHttpResponse:
    """A download with this name, which may hold any bytes. For pages too."""
    answer = StreamingHttpResponse(_released(parts), content_type=content_type)
    safe = "".join(
        letter if letter.isalnum() or letter in "._-" else "_" for letter in name if letter.isascii()
    )
    answer["Content-Disposition"] = f'attachment; filename="{safe}"'
    answer["X-Content-Type-Options"] = "nosniff"
    answer["Cache-Control"] = "no-store"
    return answer


async def _released(parts: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    await release_thread()
    async for part in parts:
        yield part
