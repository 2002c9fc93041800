"""Upload and download of a checkpoint's files by the runner: whole, in parts, or into S3 by signed addresses."""

from __future__ import annotations

import asyncio
import re
import uuid
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path

from starlette.requests import Request
from starlette.responses import FileResponse, JSONResponse, RedirectResponse, Response

from accounts.rights import Right
from experiments import arriving_files, checkpoints, s3_stores, signed_uploads, stored_files
from experiments.arriving_files import GrowingFile, WrongDigest
from experiments.checkpoints import MissingFiles
from experiments.models import Checkpoint
from experiments.states import USABLE, CheckpointState
from webui.runner_api import access, limits
from webui.runner_api.answers import RefusedRequest, endpoint, read_object, token_of, whole
from webui.runner_api.uploads import uploads
from webui.waiting.threads import on_clouds, on_files, on_storage, reading, storing

#: of the answer with a file's bytes: its SHA-256 in hex, as the server has computed it
DIGEST_HEADER = "X-Trainmaster-Sha256"
_SHA256 = re.compile(r"[0-9a-f]{64}")


@endpoint("PUT", Right.RUN)
async def put_file(request: Request) -> Response:
    """PUT: the bytes of one file. Sending it again is fine."""
    token, (checkpoint_uuid, path) = token_of(request), _named(request)
    size = _length(request)
    target = arriving_files.place(checkpoint_uuid, path)
    checkpoint = await reading(access.checkpoint_to_write, token, checkpoint_uuid)
    _check_wanted(checkpoint, path, size)
    if checkpoint.state in USABLE and await on_files(arriving_files.has, target, size):
        return JSONResponse({"path": path, "bytes": size})
    _check_open(checkpoint)
    await on_files(arriving_files.require_space, size)
    with _upload(checkpoint):
        sha256 = await _store(request, target, size)
    await storing(checkpoints.note_digest, checkpoint_uuid, path, sha256)
    return JSONResponse({"path": path, "bytes": size})


def _upload(checkpoint: Checkpoint) -> AbstractContextManager[None]:
    return uploads.one(checkpoint.trial.experiment.owner_id)


def _check_open(checkpoint: Checkpoint) -> None:
    """Raises RefusedRequest (409) once its files can no longer change."""
    if checkpoint.state != CheckpointState.PARTIAL:
        raise RefusedRequest(
            409, f"Checkpoint {checkpoint.pk} is {checkpoint.state}; its files can no longer change."
        )
    if checkpoint.storage.get("type", "server") != "server":
        raise RefusedRequest(409, f"Checkpoint {checkpoint.pk} is not in the server's own storage.")


def _named(request: Request) -> tuple[uuid.UUID, str]:
    return request.path_params["uuid"], str(request.path_params["path"])


def _length(request: Request) -> int:
    text = request.headers.get("content-length", "")
    if not text.isdecimal():
        raise RefusedRequest(411, "A file needs a Content-Length.")
    return whole(text, "Content-Length")


def _check_wanted(checkpoint: Checkpoint, path: str, size: int) -> None:
    """The record that the SDK wrote says which files there are; others would only fill the disk."""
    wanted = checkpoint.resources.get(path)
    if checkpoint.resources and wanted is None:
        raise RefusedRequest(404, f"Checkpoint {checkpoint.pk} was reported without a file {path!r}.")
    if wanted is not None and int(wanted) != size:
        raise RefusedRequest(
            400, f"The file {path!r} was reported with {int(wanted):,} bytes, but this one has {size:,}."
        )


async def _store(request: Request, target: Path, size: int) -> str:
    """Put the body in its place; its SHA-256."""
    incoming = await on_files(arriving_files.Incoming)
    try:
        await _receive(request, incoming.write, size)
        await on_files(incoming.keep, target)
    except BaseException:
        await asyncio.shield(on_files(incoming.discard))
        raise
    return incoming.sha256


async def _receive(request: Request, write: Callable[[bytes], None], size: int) -> None:
    """Hand the body on in blocks, also what comes before it breaks off. RefusedRequest unless it has `size` bytes."""
    arrived, block = 0, bytearray()
    stream = aiter(request.stream())
    try:
        while part := await _next_part(stream):
            arrived += len(part)
            if arrived > size:
                block.clear()
                raise RefusedRequest(400, f"Received more than the announced {size:,} bytes.")
            block += part
            if len(block) >= limits.FILE_BLOCK_BYTES:
                await on_files(write, bytes(block))
                block.clear()
    finally:
        if block:
            await asyncio.shield(on_files(write, bytes(block)))
    if arrived != size:
        raise RefusedRequest(400, f"Received {arrived:,} of {size:,} bytes; send the rest again.")


async def _next_part(stream: object) -> bytes:
    """The next bytes of the body, empty at its end. Each part has its time, however large the whole is."""
    try:
        async with asyncio.timeout(limits.BODY_SECONDS):
            while not (part := await anext(stream, None)):  # type: ignore[call-overload]
                if part is None:
                    return b""
            return bytes(part)
    except TimeoutError as error:
        raise RefusedRequest(408, f"Received no data of the file for {limits.BODY_SECONDS:g} s.") from error


@endpoint("GET", Right.RUN)
async def get_file(request: Request) -> Response:
    """GET: the bytes of one file, whole or by Range, for a restore; of one in S3 the address where they are."""
    token, (checkpoint_uuid, path) = token_of(request), _named(request)
    target = arriving_files.place(checkpoint_uuid, path)
    checkpoint = await reading(access.checkpoint_to_read, token, checkpoint_uuid)
    sha256 = checkpoint.digests.get(path)
    headers = {DIGEST_HEADER: sha256, "ETag": f'"{sha256}"'} if sha256 else {}
    if s3_stores.is_signed(checkpoint.storage):
        url = await on_storage(checkpoint, lambda: stored_files.store_of(checkpoint).signed_url(path))
        return RedirectResponse(str(url), 307, {**headers, "Cache-Control": "no-store"})
    if not await on_files(target.is_file):
        raise RefusedRequest(404, f"Checkpoint {checkpoint_uuid} has no file {path!r} on the server.")
    return FileResponse(target, media_type="application/octet-stream", headers=headers)


@endpoint("POST", Right.RUN)
async def complete(request: Request) -> Response:
    """POST: all files are there. 409 names those that are not, or have another size."""
    checkpoint_uuid: uuid.UUID = request.path_params["uuid"]
    checkpoint = await _writable(request, checkpoint_uuid)
    with _upload(checkpoint):
        said = (await read_object(request, limits.COMPLETE_BODY_BYTES)).get("resources", {})
    if not isinstance(said, dict) or not all(_is_size(size) for size in said.values()):
        raise RefusedRequest(400, "resources must be an object of paths and their sizes in bytes.")
    for path in said:
        arriving_files.place(checkpoint_uuid, path.rstrip("/"))
    checkpoint = await _writable(request, checkpoint_uuid)  # as it is now: the body may have taken long
    is_open = checkpoint.state == CheckpointState.PARTIAL  # a folder of one that was deleted stays away
    if is_open and checkpoint.storage.get("type", "server") == "server":
        folders = [path for path in {**checkpoint.resources, **said} if path.endswith("/")]
        await on_files(arriving_files.make_folders, checkpoint_uuid, folders)
    there = await _listing(checkpoint)
    try:
        await storing(checkpoints.completed, checkpoint_uuid, said, there)
    except MissingFiles as error:
        raise RefusedRequest(409, str(error), missing=error.paths) from error
    return JSONResponse({})


async def _listing(checkpoint: Checkpoint) -> dict[str, int]:
    try:
        return await on_storage(checkpoint, lambda: stored_files.store_of(checkpoint).listing())
    except OSError as error:
        raise RefusedRequest(503, str(error), retry_after=5) from error


def _is_size(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


@endpoint("PUT", Right.RUN)
async def put_part(request: Request) -> Response:
    """PUT ?offset=N&size=S: what follows byte N of a file of S bytes; the part that ends it brings `sha256`."""
    checkpoint, path = await _to_write(request)
    offset, size = _number(request, "offset"), _number(request, "size")
    sha256 = request.query_params.get("sha256", "")
    coming = _length(request)
    _check_wanted(checkpoint, path, size)
    is_last = offset + coming == size
    if offset + coming > size or (is_last and not _SHA256.fullmatch(sha256)):
        raise RefusedRequest(
            400,
            "A part must end within its file, and the last part must have the file's sha256 (64 hex digits).",
        )
    target = arriving_files.place(checkpoint.pk, path)
    if await on_files(arriving_files.has, target, size) and (
        not is_last or checkpoint.digests.get(path) == sha256
    ):
        return JSONResponse({"offset": size})
    _check_open(checkpoint)
    await on_files(arriving_files.require_space, size - offset)
    with _upload(checkpoint):
        await _store_part(request, checkpoint, path, target, offset, coming, sha256 if is_last else None)
    return JSONResponse({"offset": offset + coming})


async def _store_part(
    request: Request,
    checkpoint: Checkpoint,
    path: str,
    target: Path,
    offset: int,
    coming: int,
    sha256: str | None,
) -> None:
    """Append the body to the file; `sha256` is that of the whole, which this part ends. Raises RefusedRequest."""
    file = await on_files(GrowingFile, checkpoint.pk, path)
    try:
        if offset != file.size:
            raise RefusedRequest(
                409, f"The server has {file.size:,} bytes of this file, not {offset:,}.", offset=file.size
            )
        await _receive(request, file.write, coming)
        if sha256 is not None:
            await on_files(file.keep, target, sha256)
            await storing(checkpoints.note_digest, checkpoint.pk, path, sha256)
    except WrongDigest as wrong:
        sentence = f"{path!r} has the SHA-256 {wrong.found}, but {sha256} was announced; send it again."
        raise RefusedRequest(422, sentence, sha256=wrong.found, offset=0) from wrong
    finally:
        await asyncio.shield(on_files(file.close))


@endpoint("GET", Right.RUN)
async def get_part(request: Request) -> Response:
    """GET: how much of a file is here, so that an upload continues where it stopped."""
    checkpoint, path = await _to_write(request)
    wanted = checkpoint.resources.get(path)
    if wanted is not None and await on_files(
        arriving_files.has, arriving_files.place(checkpoint.pk, path), int(wanted)
    ):
        return JSONResponse({"offset": int(wanted)})
    return JSONResponse({"offset": await on_files(arriving_files.arrived, checkpoint.pk, path)})


@endpoint("POST", Right.RUN)
async def sign(request: Request) -> Response:
    """POST {"path", "size", "sha256"?}: which parts of a file S3 still lacks, each with its signed address.

    `sha256` says that the sender has read, and believes to have sent, all: then the parts are put together.
    """
    checkpoint_uuid: uuid.UUID = request.path_params["uuid"]
    checkpoint = await _writable(request, checkpoint_uuid)
    body = await read_object(request, limits.SMALL_BODY_BYTES)
    path, size, sha256 = body.get("path"), body.get("size"), body.get("sha256")
    if not isinstance(path, str) or not isinstance(size, int) or size < 0 or isinstance(size, bool):
        raise RefusedRequest(400, 'The body must be {"path": "…", "size": bytes, "sha256"?: 64 hex digits}.')
    arriving_files.place(checkpoint_uuid, path)
    _check_wanted(checkpoint, path, size)
    if sha256 is not None and not (isinstance(sha256, str) and _SHA256.fullmatch(sha256)):
        raise RefusedRequest(400, "sha256 must be 64 hex digits.")
    if checkpoint.state != CheckpointState.PARTIAL:
        raise RefusedRequest(
            409, f"Checkpoint {checkpoint_uuid} is {checkpoint.state}; its files can no longer change."
        )
    try:
        standing = await on_clouds(signed_uploads.go_on, checkpoint, path, size, sha256)
    except ConnectionError as error:
        raise RefusedRequest(503, str(error), retry_after=5, of_storage=True) from error
    except OSError as error:
        raise RefusedRequest(409, str(error)) from error
    if standing.stored and sha256:
        await storing(checkpoints.note_digest, checkpoint_uuid, path, sha256)
    return JSONResponse({"stored": standing.stored, "parts": standing.parts})


@endpoint("POST", Right.RUN)
async def check(request: Request) -> Response:
    """POST: addresses by which a run finds out, before it starts, whether it can write, read and delete in S3."""
    token = token_of(request)
    run_id, section = await reading(access.storage_of, token)
    account = s3_stores.account_of(section) if section.get("type") == "s3" else None
    if account is None:
        raise RefusedRequest(409, "The server has no keys for this run's checkpoint_storage.")

    def sign_all() -> dict[str, str]:
        store = s3_stores.S3Store(account, f"check-{run_id}")
        names = {"put": "put_object", "get": "get_object", "delete": "delete_object"}
        return {method: store.sign(name, s3_stores.UPLOAD_SECONDS, "check") for method, name in names.items()}

    return JSONResponse(await on_clouds(sign_all))


async def _to_write(request: Request) -> tuple[Checkpoint, str]:
    checkpoint_uuid, path = _named(request)
    arriving_files.place(checkpoint_uuid, path)
    return await _writable(request, checkpoint_uuid), path


async def _writable(request: Request, checkpoint_uuid: uuid.UUID) -> Checkpoint:
    return await reading(access.checkpoint_to_write, token_of(request), checkpoint_uuid)


def _number(request: Request, name: str) -> int:
    return whole(request.query_params.get(name, ""), name)
