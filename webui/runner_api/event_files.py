"""Files for TensorBoard: takes in what runners bring (appended to a file, or a new file), and serves the task of a
TensorBoard: stored metrics as event files, and what training code wrote itself."""

from __future__ import annotations

import fcntl
import hashlib
import os
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from django.conf import settings
from django.db.models import Q
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from accounts.rights import Right
from commands.models import Service
from experiments import arriving_files, event_files
from experiments.models import Trial
from experiments.states import ExperimentState
from metrics import series, tensorboard
from metrics.models import Group
from shown.tensorboard_archive import folders
from webui.runner_api import access, limits
from webui.runner_api.answers import RefusedRequest, endpoint, read_body, token_of, whole
from webui.runner_api.uploads import uploads
from webui.waiting.threads import catching_up, on_files, reading

_GOING = {ExperimentState.DELETING, ExperimentState.DELETE_FAILED}


@endpoint("PUT", Right.RUN)
async def put(request: Request) -> Response:
    """PUT ?offset=N: what follows byte N of a file. 409 with its `offset` and `sha256` where it ends elsewhere.

    With `replace=true` and offset 0 it stands in the place of a file of this name, which the present attempt may do.
    """
    token, path = token_of(request), str(request.path_params["path"])
    arriving_files.names_of(path)
    offset = whole(request.query_params.get("offset", ""), "offset")
    replace = request.query_params.get("replace") == "true"
    if replace and offset:
        raise RefusedRequest(400, f"offset is {offset}; it must be 0 with replace=true.")
    folder, is_current, owner_id = await reading(_place, token)
    if replace and not is_current:
        raise RefusedRequest(410, "This attempt has ended; it cannot replace files of the current one.")
    with uploads.one(owner_id):
        block = await read_body(request, limits.EVENT_FILE_PART_BYTES)
        return JSONResponse({"offset": await on_files(_append, folder, path, offset, block, replace)})


def _place(token: str) -> tuple[Path, bool, int]:
    """Where a run's files are, whether it is its trial's current attempt, and whose it is. Raises RefusedRequest."""
    run = access.run_of(token, over_too=True)
    trial = Trial.objects.select_related("experiment", "task").filter(task_id=run.task_id).first()
    if trial is None or trial.experiment.state in _GOING:
        raise RefusedRequest(
            404, "This run does not belong (or no longer belongs) to a trial that stores TensorBoard files."
        )
    folder = event_files.folder_of_trial(trial.experiment_id, trial.pk)
    return folder, run.number == trial.task.run_count, trial.experiment.owner_id


def _append(folder: Path, path: str, offset: int, block: bytes, replace: bool) -> int:
    """The file's length then. One request at a time works on a file, whichever process it comes to."""
    target = folder / path
    _refuse_too_much(folder, target, len(block))
    target.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    descriptor = os.open(target, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        if replace:
            os.ftruncate(descriptor, 0)
        size = os.fstat(descriptor).st_size
        if size != offset:
            sentence = f"{path!r} has {size:,} bytes on the server, not {offset:,}."
            raise RefusedRequest(409, sentence, offset=size, sha256=_digest(target))
        view = memoryview(block)
        while view:
            view = view[os.write(descriptor, view) :]
        return offset + len(block)
    finally:
        os.close(descriptor)


def _refuse_too_much(folder: Path, target: Path, coming: int) -> None:
    sizes = [path.stat().st_size for path in folder.rglob("*") if path.is_file()] if folder.exists() else []
    if sum(sizes) + coming > settings.EVENT_FILES_BYTES_PER_TRIAL:
        allowed = settings.EVENT_FILES_BYTES_PER_TRIAL
        raise RefusedRequest(
            413, f"A trial may store {allowed:,} bytes of TensorBoard files; this one has {sum(sizes):,}."
        )
    if len(sizes) >= settings.EVENT_FILES_PER_TRIAL and not target.exists():
        raise RefusedRequest(
            413, f"A trial may store at most {settings.EVENT_FILES_PER_TRIAL:,} TensorBoard files."
        )
    arriving_files.require_space(coming)


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


@dataclass(frozen=True)
class _Part:
    """What follows in a file: `anew` says that it stands in the place of all that came before."""

    data: bytes
    anew: bool
    #: what to send as `after` the next time
    upto: str
    more: bool


@endpoint("GET", Right.RUN)
async def listing(request: Request) -> Response:
    """{"files": [{"path", "version"}]}: a file whose version is another than the last time has more to say."""
    return JSONResponse({"files": await catching_up(_files, token_of(request))})


@endpoint("GET", Right.RUN)
async def file(request: Request) -> Response:
    """GET ?path&offset&after: what follows, `offset` being what the task has, `after` our word of last time."""
    query = request.query_params
    offset = whole(query.get("offset", "0"), "offset")
    token = token_of(request)
    part = await catching_up(_part, token, query.get("path", ""), offset, query.get("after", ""))
    headers = {
        "X-Trainmaster-Anew": str(part.anew).lower(),
        "X-Trainmaster-Upto": part.upto,
        "X-Trainmaster-More": str(part.more).lower(),
    }
    return Response(part.data, media_type="application/octet-stream", headers=headers)


def _files(token: str) -> list[dict[str, Any]]:
    found, trials = [], _trials(token)
    versions_of: dict[int, dict[str, str]] = defaultdict(dict)
    reported = Group.objects.filter(trial_id__in=[trial.pk for trial in trials], reports__gt=0)
    for trial_id, name, reports, last in reported.values_list("trial_id", "name", "reports", "last_step"):
        versions_of[trial_id][name] = f"{reports}.{last}"
    for trial in trials:
        folder, versions = f"trial-{trial.pk}", versions_of[trial.pk]
        for group, own in folders(list(versions)).items():
            found.append({"path": f"{folder}/{own}/{_event_file(trial)}", "version": versions[group]})
        for path, written in event_files.of_trial(trial.experiment_id, trial.pk):
            found.append({"path": f"{folder}/files/{path}", "version": str(written.stat().st_size)})
    return found


def _part(token: str, path: str, offset: int, after: str) -> _Part:
    folder, _, rest = path.partition("/")
    trial = next((each for each in _trials(token) if folder == f"trial-{each.pk}"), None)
    if trial is None:
        raise RefusedRequest(404, f"This TensorBoard has no file {path!r}.")
    own, _, name = rest.partition("/")
    if own == "files":
        known = dict(event_files.of_trial(trial.experiment_id, trial.pk))
        if name in known:
            return _written(known[name], offset)
    for group, its in folders(series.groups(trial.pk)).items():
        if its == own:
            return _made(trial, group, after if after.isdecimal() else "")
    raise RefusedRequest(404, f"This TensorBoard has no file {path!r}.")


def _written(path: Path, offset: int) -> _Part:
    """By training code itself; one that is shorter than what the task has is another file."""
    size = path.stat().st_size
    anew = offset > size
    with path.open("rb") as opened:
        opened.seek(0 if anew else offset)
        data = opened.read(limits.TENSORBOARD_BLOCK_BYTES)
        return _Part(data, anew, "", opened.tell() < size)


def _made(trial: Trial, group: str, after: str) -> _Part:
    """Write event files from stored metrics; a trial that started over behind `after` is written again in full."""
    last = Group.objects.filter(trial_id=trial.pk, name=group).values_list("last_step", flat=True).first()
    known = whole(after, "after") if after else None
    if known is not None and (last is None or last < known):
        known = None
    data = b"".join(tensorboard.event_file(trial.pk, group, trial.started_at.timestamp(), known))
    return _Part(data, known is None, "" if last is None else str(last), False)


def _event_file(trial: Trial) -> str:
    return f"events.out.tfevents.{int(trial.started_at.timestamp())}.trainmaster"


def _trials(token: str) -> list[Trial]:
    """What the TensorBoard that asks was started for. Raises RefusedRequest (401, 404)."""
    run = access.run_of(token)
    service = Service.objects.filter(command__task_id=run.task_id).first()
    if service is None or not (service.experiment_ids or service.trial_ids):
        raise RefusedRequest(404, "This run is not a TensorBoard.")
    shown = Q(pk__in=service.trial_ids)
    for experiment_id in service.experiment_ids:
        first = Trial.objects.filter(experiment_id=experiment_id).order_by("pk").values_list("pk", flat=True)
        shown |= Q(pk__in=list(first[: limits.TENSORBOARD_TRIALS]))
    return list(Trial.objects.filter(shown).order_by("pk"))
