"""The files of checkpoints: their list, each of them (by Range too), and all as one archive.

`/checkpoints/<uuid>` without `/api/v1` is where the published client asks for an archive.
"""

from __future__ import annotations

import re
import uuid
from collections.abc import Callable
from typing import TypeVar

from django.db.models import Q
from django.http import (
    HttpRequest,
    HttpResponseBase,
    HttpResponseRedirect,
    JsonResponse,
    StreamingHttpResponse,
)
from rest_framework import status
from rest_framework.exceptions import APIException

from accounts.rights import Right
from experiments import checkpoints, stored_files
from experiments.models import Checkpoint
from experiments.states import USABLE, CheckpointState
from jobs.models import Allocation
from webui.api.answers import Answer, Maybe, Media, Number64
from webui.api.async_views import Principal, async_view
from webui.api.authentication import trial_of
from webui.api.checkpoint_encoding import find
from webui.api.errors import BadRequest, Conflict, Missing
from webui.api.log_files import as_file
from webui.downloads.checkpoints import FORMATS, archive, one_file
from webui.waiting.threads import on_storage, reading

R = TypeVar("R")
_RANGE = re.compile(r"bytes=(\d+)-(\d*)")


class StorageAway(APIException):
    """The storage is not responding."""

    status_code = status.HTTP_503_SERVICE_UNAVAILABLE


class StoredFile(Answer):
    path: str
    size_bytes: Number64
    sha256: Maybe[str] = None
    url: Maybe[str] = None


class StoredFilesAnswer(Answer):
    files: list[StoredFile]


@async_view("GET", Right.READ | Right.RUN)
async def listing(request: HttpRequest, who: Principal, checkpoint_uuid: uuid.UUID) -> StoredFilesAnswer:
    """The checkpoint's files: path, size in bytes, SHA-256 if known, and its address in the storage, if any.

    409 if the server cannot reach them; the message says where they are.
    """
    checkpoint = await reading(_find, who, checkpoint_uuid)
    files, urls = await _asked(checkpoint, lambda: _with_urls(checkpoint))
    digests = checkpoint.digests
    rows = [
        StoredFile(path=path, size_bytes=str(size), sha256=digests.get(path), url=urls[path] or None)
        for path, size in sorted(files.items())
    ]
    return StoredFilesAnswer(files=rows)


@async_view("GET", Right.READ | Right.RUN, answer=Media("application/octet-stream"))
async def file(
    request: HttpRequest, who: Principal, checkpoint_uuid: uuid.UUID, path: str
) -> HttpResponseBase:
    """One file, whole or by Range; redirects to the storage if it serves the file itself."""
    checkpoint = await reading(_find, who, checkpoint_uuid)
    files = await _asked(checkpoint, lambda: stored_files.store_of(checkpoint).listing())
    if path not in files:
        raise Missing(f"checkpoint {checkpoint_uuid} has no file {path!r}")
    if url := await _asked(checkpoint, lambda: stored_files.store_of(checkpoint).signed_url(path)):
        return HttpResponseRedirect(url, headers={"Cache-Control": "no-store"})
    part = _part(request, files[path])
    if part is None:
        answer = JsonResponse({"message": "The range starts after the end of the file."}, status=416)
        answer["Content-Range"] = f"bytes */{files[path]}"
        return answer
    return _streamed(checkpoint, path, part, files[path])


@async_view("GET", Right.READ | Right.RUN, answer=Media(*FORMATS.values()))
async def whole(request: HttpRequest, who: Principal, checkpoint_uuid: uuid.UUID) -> HttpResponseBase:
    """All its files as an archive: `?format=tar.gz` (default), `tar` or `zip`, or by the Accept header."""
    kind = _format(request)
    checkpoint = await reading(_find, who, checkpoint_uuid)
    files = await _asked(checkpoint, lambda: stored_files.store_of(checkpoint).listing())
    if not files:
        raise Missing(f"none of the files of checkpoint {checkpoint_uuid} is in its storage")
    return as_file(archive(checkpoint, files, kind), f"{checkpoint_uuid}.{kind}", FORMATS[kind])


def _find(who: Principal, checkpoint_uuid: uuid.UUID) -> Checkpoint:
    """The checkpoint, which must be complete; a run sees those of its experiment and what it began with."""
    among = Q()
    if isinstance(who, Allocation):
        trial = trial_of(who)
        among = checkpoints.open_to(trial) if trial else Q(pk=None)
    checkpoint = find(checkpoint_uuid, among)
    if checkpoint.state not in USABLE:
        state = {
            CheckpointState.PARTIAL: "still being uploaded; try again when the upload is complete",
            CheckpointState.ERROR: "incomplete: its files were never uploaded in full",
        }.get(CheckpointState(checkpoint.state), "deleted")
        raise Conflict(f"Checkpoint {checkpoint_uuid} is {state}.")
    return checkpoint


def _with_urls(checkpoint: Checkpoint) -> tuple[dict[str, int], dict[str, str | None]]:
    store = stored_files.store_of(checkpoint)
    files = store.listing()
    return files, {path: store.signed_url(path) for path in files}


async def _asked(checkpoint: Checkpoint, function: Callable[[], R]) -> R:
    """What a storage says, or its sentence as an error."""
    try:
        return await on_storage(checkpoint, function)
    except stored_files.NotHere as error:
        raise Conflict(str(error)) from error
    except FileNotFoundError as error:
        raise Missing(str(error)) from error
    except OSError as error:
        raise StorageAway(str(error)) from error


def _part(request: HttpRequest, size: int) -> range | None:
    """The bytes that are asked for; None where there are none. What is no simple range means the whole file."""
    asked = _RANGE.fullmatch(request.headers.get("range", ""))
    if asked is None:
        return range(size)
    return range(size)[int(asked[1]) : int(asked[2]) + 1 if asked[2] else size] or None


def _streamed(checkpoint: Checkpoint, path: str, part: range, size: int) -> StreamingHttpResponse:
    parts = one_file(checkpoint, path, part.start, len(part))
    answer = as_file(parts, path.split("/")[-1], "application/octet-stream")
    answer["Accept-Ranges"] = "bytes"
    answer["Content-Length"] = str(len(part))
    if len(part) != size:
        answer.status_code = 206
        answer["Content-Range"] = f"bytes {part.start}-{part.stop - 1}/{size}"
    return answer


def _format(request: HttpRequest) -> str:
    asked = request.GET.get("format")
    if asked is not None:
        if asked not in FORMATS:
            raise BadRequest(f"format is {asked!r}; allowed: {', '.join(FORMATS)}.")
        return asked
    accepted = request.headers.get("accept", "")
    return next((kind for kind, media in FORMATS.items() if media in accepted), "tar.gz")
