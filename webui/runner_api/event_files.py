"""Takes in files for TensorBoard as runners bring them: appended where they stand, or begun anew."""

from __future__ import annotations

import fcntl
import hashlib
import os
from pathlib import Path

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from experiments import event_files
from experiments.models import Trial
from experiments.states import ExperimentState
from webui.runner_api import access, files, limits
from webui.runner_api.answers import RefusedRequest, endpoint, read_body
from webui.waiting.threads import on_files, reading

_GOING = {ExperimentState.DELETING, ExperimentState.DELETE_FAILED}


@endpoint
async def put(request: Request) -> Response:
    """PUT ?offset=N: what follows byte N of a file. 409 with its `offset` and `sha256` where it ends elsewhere.

    With `replace=true` and offset 0 it stands in the place of a file of this name, which the present attempt may do.
    """
    token, path = access.token_of(request), str(request.path_params["path"])
    files.names_of(path)
    offset, replace = request.query_params.get("offset", ""), request.query_params.get("replace") == "true"
    if not offset.isdecimal() or (replace and int(offset)):
        raise RefusedRequest(
            400, f"offset is {offset!r}; it must be a number of bytes, and 0 with replace=true."
        )
    block = await read_body(request, limits.EVENT_FILE_PART_BYTES)
    folder, is_current = await reading(_place, token)
    if replace and not is_current:
        raise RefusedRequest(410, "This attempt has ended; it cannot replace files of the current one.")
    return JSONResponse({"offset": await on_files(_append, folder, path, int(offset), block, replace)})


def _place(token: str) -> tuple[Path, bool]:
    """Where a run's files lie, and whether it is its trial's present attempt. Raises RefusedRequest."""
    run = access.run_of(token, over_too=True)
    trial = Trial.objects.select_related("experiment", "task").filter(task_id=run.task_id).first()
    if trial is None or trial.experiment.state in _GOING:
        raise RefusedRequest(
            404, "This run does not belong (or no longer belongs) to a trial that stores TensorBoard files."
        )
    folder = event_files.folder_of_trial(trial.experiment_id, trial.pk)
    return folder, run.number == trial.task.run_count


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
    if sum(sizes) + coming > limits.EVENT_FILES_BYTES_PER_TRIAL:
        allowed = limits.EVENT_FILES_BYTES_PER_TRIAL
        raise RefusedRequest(
            413, f"A trial may store {allowed:,} bytes of TensorBoard files; this one has {sum(sizes):,}."
        )
    if len(sizes) >= limits.EVENT_FILES_PER_TRIAL and not target.exists():
        raise RefusedRequest(
            413, f"A trial may store at most {limits.EVENT_FILES_PER_TRIAL:,} TensorBoard files."
        )
    files.require_space(coming)


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
