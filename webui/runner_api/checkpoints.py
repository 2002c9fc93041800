"""Upload and download of a checkpoint's files by the runner."""

from __future__ import annotations

import asyncio
import uuid
from pathlib import Path

from starlette.requests import Request
from starlette.responses import FileResponse, JSONResponse, Response

from experiments import checkpoints
from experiments.checkpoints import MissingFiles
from experiments.models import Checkpoint
from experiments.states import CheckpointState
from webui.live.threads import on_files, reading, storing
from webui.runner_api import access, files, limits
from webui.runner_api.answers import Refused, endpoint, read_object


@endpoint
async def put_file(request: Request) -> Response:
    """PUT: the bytes of one file. Sending it again is fine."""
    token, (checkpoint_uuid, path) = access.token_of(request), _named(request)
    size = _length(request)
    target = files.place(checkpoint_uuid, path)
    checkpoint = await reading(
        lambda: access.checkpoint_to_write(access.run_of(token, over_too=True), checkpoint_uuid)
    )
    _check_wanted(checkpoint, path, size)
    if await on_files(files.has, target, size) and checkpoint.state == CheckpointState.COMPLETED:
        return JSONResponse({"path": path, "bytes": size})
    if checkpoint.state != CheckpointState.PARTIAL:
        raise Refused(
            409, f"Checkpoint {checkpoint_uuid} is {checkpoint.state}; its files do not change any more."
        )
    if size > await on_files(files.room_left):
        raise Refused(507, f"The server's disk has no room for {size:,} bytes.", retry_after=60)
    await _receive(request, target, size)
    return JSONResponse({"path": path, "bytes": size})


def _named(request: Request) -> tuple[uuid.UUID, str]:
    return request.path_params["uuid"], str(request.path_params["path"])


def _length(request: Request) -> int:
    text = request.headers.get("content-length", "")
    if not text.isdecimal():
        raise Refused(411, "A file needs its Content-Length.")
    return int(text)


def _check_wanted(checkpoint: Checkpoint, path: str, size: int) -> None:
    """The record that the SDK wrote says which files there are; others would only fill the disk."""
    wanted = checkpoint.resources.get(path)
    if checkpoint.resources and wanted is None:
        raise Refused(404, f"Checkpoint {checkpoint.pk} was reported without a file {path!r}.")
    if wanted is not None and int(wanted) != size:
        raise Refused(
            400, f"The file {path!r} was reported with {int(wanted):,} bytes, this one has {size:,}."
        )


async def _receive(request: Request, target: Path, size: int) -> None:
    incoming = await on_files(files.Incoming)
    kept = False
    try:
        arrived, block = 0, bytearray()
        stream = aiter(request.stream())
        while part := await _next_part(stream):
            arrived += len(part)
            if arrived > size:
                raise Refused(400, f"More than the announced {size:,} bytes came.")
            block += part
            if len(block) >= limits.FILE_BLOCK_BYTES:
                await on_files(incoming.write, bytes(block))
                block.clear()
        if arrived != size:
            raise Refused(400, f"{arrived:,} of {size:,} bytes came; send the file again.")
        await on_files(incoming.write, bytes(block))
        await on_files(incoming.keep, target)
        kept = True
    finally:
        if not kept:
            await asyncio.shield(on_files(incoming.discard))


async def _next_part(stream: object) -> bytes:
    """The next bytes of the body, empty at its end. Each part has its time, however large the whole is."""
    try:
        async with asyncio.timeout(limits.BODY_SECONDS):
            while not (part := await anext(stream, None)):  # type: ignore[call-overload]
                if part is None:
                    return b""
            return bytes(part)
    except TimeoutError as error:
        raise Refused(408, f"No byte of the file came for {limits.BODY_SECONDS:g} s.") from error


@endpoint
async def get_file(request: Request) -> Response:
    """GET: the bytes of one file, whole or by Range, for a restore."""
    token, (checkpoint_uuid, path) = access.token_of(request), _named(request)
    target = files.place(checkpoint_uuid, path)
    await reading(lambda: access.checkpoint_to_read(access.run_of(token), checkpoint_uuid))
    if not await on_files(target.is_file):
        raise Refused(404, f"Checkpoint {checkpoint_uuid} has no file {path!r} on the server.")
    return FileResponse(target, media_type="application/octet-stream")


@endpoint
async def complete(request: Request) -> Response:
    """POST: all files are there. 409 names those that are not, or have another size."""
    token, checkpoint_uuid = access.token_of(request), request.path_params["uuid"]
    said = (await read_object(request, limits.COMPLETE_BODY_BYTES)).get("resources", {})
    if not isinstance(said, dict) or not all(_is_size(size) for size in said.values()):
        raise Refused(400, "resources must be an object of paths and their sizes in bytes.")
    for path in said:
        files.place(checkpoint_uuid, path.rstrip("/"))

    def check_and_mark() -> None:
        checkpoint = access.checkpoint_to_write(access.run_of(token, over_too=True), checkpoint_uuid)
        names = {**checkpoint.resources, **said}
        files.make_folders(checkpoint_uuid, [path for path in names if path.endswith("/")])
        checkpoints.completed(checkpoint_uuid, said)

    try:
        await storing(check_and_mark)
    except MissingFiles as error:
        raise Refused(409, str(error), missing=error.paths) from error
    return JSONResponse({})


def _is_size(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0
