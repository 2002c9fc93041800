"""Uploads of a checkpoint's file in parts: into the server's own store, or into S3 by signed addresses."""

from __future__ import annotations

import asyncio
import re
import uuid

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from experiments import checkpoints, s3_stores, signed_uploads
from experiments.models import Checkpoint
from experiments.states import CheckpointState
from webui.runner_api import access, files, limits
from webui.runner_api.answers import RefusedRequest, endpoint, read_object
from webui.runner_api.checkpoints import check_open, check_wanted, length, named, receive
from webui.runner_api.files import GrowingFile, WrongDigest
from webui.waiting.threads import on_clouds, on_files, reading, storing

_SHA256 = re.compile(r"[0-9a-f]{64}")


@endpoint
async def put_part(request: Request) -> Response:
    """PUT ?offset=N&size=S: what follows byte N of a file of S bytes; the part that ends it brings `sha256`."""
    checkpoint, path = await _to_write(request)
    offset, size = _number(request, "offset"), _number(request, "size")
    sha256 = request.query_params.get("sha256", "")
    coming = length(request)
    check_wanted(checkpoint, path, size)
    is_last = offset + coming == size
    if offset + coming > size or (is_last and not _SHA256.fullmatch(sha256)):
        raise RefusedRequest(
            400,
            "A part must end within its file, and the last part must have the file's sha256 (64 hex digits).",
        )
    target = files.place(checkpoint.pk, path)
    if await on_files(files.has, target, size) and (not is_last or checkpoint.digests.get(path) == sha256):
        return JSONResponse({"offset": size})
    check_open(checkpoint)
    await on_files(files.require_space, size - offset)
    file = await on_files(GrowingFile, checkpoint.pk, path)
    try:
        if offset != file.size:
            raise RefusedRequest(
                409, f"The server has {file.size:,} bytes of this file, not {offset:,}.", offset=file.size
            )
        await receive(request, file.write, coming)
        if is_last:
            await on_files(file.keep, target, sha256)
            await storing(checkpoints.note_digest, checkpoint.pk, path, sha256)
    except WrongDigest as wrong:
        sentence = f"{path!r} has the SHA-256 {wrong.found}, but {sha256} was announced; send it again."
        raise RefusedRequest(422, sentence, sha256=wrong.found, offset=0) from wrong
    finally:
        await asyncio.shield(on_files(file.close))
    return JSONResponse({"offset": offset + coming})


@endpoint
async def get_part(request: Request) -> Response:
    """GET: how much of a file is here, so that an upload goes on where it stopped."""
    checkpoint, path = await _to_write(request)
    wanted = checkpoint.resources.get(path)
    if wanted is not None and await on_files(files.has, files.place(checkpoint.pk, path), int(wanted)):
        return JSONResponse({"offset": int(wanted)})
    return JSONResponse({"offset": await on_files(files.arrived, checkpoint.pk, path)})


@endpoint
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
    files.place(checkpoint_uuid, path)
    check_wanted(checkpoint, path, size)
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


@endpoint
async def check(request: Request) -> Response:
    """POST: addresses by which a run finds out, before it starts, whether it can write, read and delete in S3."""
    token = access.token_of(request)
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
    checkpoint_uuid, path = named(request)
    files.place(checkpoint_uuid, path)
    return await _writable(request, checkpoint_uuid), path


async def _writable(request: Request, checkpoint_uuid: uuid.UUID) -> Checkpoint:
    return await reading(access.checkpoint_to_write, access.token_of(request), checkpoint_uuid)


def _number(request: Request, name: str) -> int:
    text = request.query_params.get(name, "")
    if not text.isdecimal():
        raise RefusedRequest(400, f"{name} is {text!r}; it must be a number of bytes.")
    return int(text)
