"""Answers of the runner's road, and the errors that become them (docs/protocol.md "Shipping")."""

from __future__ import annotations

import asyncio
import functools
import logging
from collections.abc import Awaitable, Callable
from http import HTTPStatus
from typing import Any

from django.db import InterfaceError, OperationalError
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response

from accounts.refusals import Refusal
from accounts.rights import Right, declares
from dispatch.runs.intake import Intake, Over
from logs.streams import OffsetConflict
from shown import full_disk
from trainmaster import bounded_json
from trainmaster.protocol import OLDEST_PROTOCOL, PROTOCOL, PROTOCOL_HEADER
from webui.api.errors import body
from webui.refusals import RETRY_AFTER, STATUS
from webui.runner_api import limits
from webui.waiting.threads import on_files

log = logging.getLogger(__name__)

_SCHEME = "bearer "
_DIGITS = 18  # of a number that the database can hold

Endpoint = Callable[[Request], Awaitable[Response]]


class RefusedRequest(Exception):
    """The request gets this status and sentence; `fields` join the answer's body."""

    def __init__(self, status: int, sentence: str, *, retry_after: int | None = None, **fields: Any) -> None:
        super().__init__(sentence)
        self.status = status
        self.retry_after = retry_after
        self.fields = fields


def answer_of(intake: Intake) -> JSONResponse:
    orders = {"preempt": intake.preempt, "stop": intake.stop}
    return JSONResponse(orders if intake.offset < 0 else {"offset": intake.offset, **orders})


def endpoint(method: str, right: Right) -> Callable[[Endpoint], Endpoint]:
    """Check the protocol's version, and turn errors into answers with a sentence.

    With Right.RUN the request must have a token; which run's it is, `access` finds out with what the run asks for.
    """

    def wrap(view: Endpoint) -> Endpoint:
        @functools.wraps(view)
        async def guarded(request: Request) -> Response:
            try:
                _check_protocol(request)
                if Right.RUN in right:
                    token_of(request)
                return await view(request)
            except Exception as error:
                return _answer_to(error)

        return declares({method: right})(guarded)

    return wrap


def token_of(request: Request) -> str:
    """The bearer token. Raises RefusedRequest (401) when there is none."""
    authorization = request.headers.get("authorization", "")
    if not authorization.lower().startswith(_SCHEME):
        raise RefusedRequest(401, "The request has no run token: send Authorization: Bearer <run token>.")
    return authorization[len(_SCHEME) :].strip()


def _check_protocol(request: Request) -> None:
    sent = request.headers.get(PROTOCOL_HEADER, str(PROTOCOL))
    if not sent.isdecimal() or not OLDEST_PROTOCOL <= int(sent) <= PROTOCOL:
        raise RefusedRequest(
            400,
            f"{PROTOCOL_HEADER} is {sent!r}; this server speaks {OLDEST_PROTOCOL} to {PROTOCOL}. "
            "Update the server before its hosts.",
        )


def _answer_to(error: Exception) -> Response:
    if sentence := full_disk.sentence_of(error):
        log.warning("%s (%s)", sentence, error)
        return _error(HTTPStatus.INSUFFICIENT_STORAGE, sentence, limits.FULL_DISK_RETRY_AFTER_SECONDS)
    match error:
        case RefusedRequest():
            return _error(error.status, str(error), error.retry_after, error.fields)
        case OffsetConflict():
            return _error(409, str(error), None, {"offset": error.stored})
        case Over():
            return _error(410, str(error))
        case Refusal():
            return _error(STATUS[error.code], str(error), RETRY_AFTER.get(error.code))
        case OperationalError() | InterfaceError():
            log.warning("the database is unavailable or busy: %s", error)
            sentence = "The database is unavailable or busy; try again."
            return _error(503, sentence, limits.UNAVAILABLE_RETRY_AFTER_SECONDS)
        case FileExistsError() | NotADirectoryError() | IsADirectoryError():
            return _error(
                409, "A name stands for a file here and for a folder there; one of the two cannot be stored."
            )
        case ClientDisconnect():
            return _error(400, "The request was interrupted.")
    log.error("the runner's request failed", exc_info=error)
    return _error(500, "Internal server error. The server's log has the details.")


def _error(
    status: int, sentence: str, retry_after: int | None = None, fields: dict[str, Any] | None = None
) -> Response:
    headers = {} if retry_after is None else {"Retry-After": str(retry_after)}
    return JSONResponse({**body(status, sentence), **(fields or {})}, status, headers)


async def read_body(request: Request, limit_bytes: int) -> bytes:
    """The whole body. Raises RefusedRequest (413 beyond the limit, 408 when it stops arriving).

    Call it only once it is known who sends: otherwise anyone could fill the memory.
    """
    announced = request.headers.get("content-length", "0")
    if announced.isdecimal() and int(announced) > limit_bytes:
        raise too_large(limit_bytes)
    parts, size = [], 0
    try:
        async with asyncio.timeout(limits.BODY_SECONDS):
            async for part in request.stream():
                size += len(part)
                if size > limit_bytes:
                    raise too_large(limit_bytes)
                parts.append(part)
    except TimeoutError as error:
        raise RefusedRequest(408, f"The body did not arrive within {limits.BODY_SECONDS:g} s.") from error
    return b"".join(parts)


def too_large(limit_bytes: int) -> RefusedRequest:
    return RefusedRequest(413, f"The body is larger than {limit_bytes:,} bytes; send less at a time.")


def whole(text: str, name: str) -> int:
    """A number of bytes, as a query or a header has it. Raises RefusedRequest (400)."""
    if not (text.isascii() and text.isdecimal()) or len(text) > _DIGITS:
        raise RefusedRequest(400, f"{name} is {text[:40]!r}; it must be a number of bytes.")
    return int(text)


async def read_object(request: Request, limit_bytes: int) -> dict[str, Any]:
    """The body as a JSON object. Raises RefusedRequest."""
    raw = await read_body(request, limit_bytes)
    try:
        is_small = len(raw) <= limits.PARSED_AT_ONCE_BYTES
        value = bounded_json.loads(raw or b"{}") if is_small else await on_files(bounded_json.loads, raw)
    except ValueError as error:
        raise RefusedRequest(400, f"The body is not JSON: {error}.") from error
    if not isinstance(value, dict):
        raise RefusedRequest(400, "The body is not a JSON object.")
    return value
