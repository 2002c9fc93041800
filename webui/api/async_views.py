"""Long polls and streams of the dialect: async views beside DRF, which hold no thread while they wait."""

from __future__ import annotations

import functools
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Mapping, Sequence
from typing import Any, Concatenate, ParamSpec, cast

from django.conf import settings
from django.http import HttpRequest, HttpResponse, HttpResponseBase, StreamingHttpResponse
from django.views.decorators.csrf import csrf_exempt
from pydantic_core import to_json

from accounts import rights
from accounts.models import User
from accounts.rights import Right, declares
from jobs.models import Allocation
from trainmaster import bounded_json
from webui.api import answers
from webui.api.authentication import NOBODY, UNKNOWN, authenticate, bearer_tokens
from webui.api.errors import BadRequest, describe, json_error
from webui.api.errors import body as error_body
from webui.api.permissions import require_run
from webui.api.protojson import query_in_camel_case
from webui.waiting.threads import reading, release_thread

P = ParamSpec("P")
Principal = User | Allocation
Answered = HttpResponseBase | answers.Answer | None
Handler = Callable[Concatenate[HttpRequest, Principal, P], Awaitable[Answered]]
View = Callable[Concatenate[HttpRequest, P], Coroutine[Any, Any, HttpResponseBase]]


def async_view(
    method: str, right: Right, *, body: Any = None, answer: Any = None, polled: bool = False
) -> Callable[[Handler[P]], View[P]]:
    """Login, right, method check and errors of an async view. CSRF does not apply: writing needs a token, no cookie.

    `body` is the type of what it reads, for OpenAPI; `answer` that of a success (webui.api.answers), where the handler
    makes the response itself. Else it returns the answer, or nothing. `polled`: programs reach it by the short way.
    """

    def wrap(handler: Handler[P]) -> View[P]:
        declared = {method: answer or answers.declared_by(handler)}

        @csrf_exempt
        @functools.wraps(handler)
        async def view(request: HttpRequest, *args: P.args, **kwargs: P.kwargs) -> HttpResponseBase:
            if request.method != method:
                refused: HttpResponse = json_error(405, f'Method "{request.method}" not allowed.')
                refused["Allow"] = method
                return refused
            answered = await handled(request, *args, **kwargs)
            if settings.CHECK_ANSWERS:
                answers.check(declared, method, request.path, handler.__name__, answered)
            return answered

        async def handled(request: HttpRequest, *args: P.args, **kwargs: P.kwargs) -> HttpResponseBase:
            request.GET = query_in_camel_case(request.GET)  # type: ignore[assignment]  # made mutable while it is read
            try:
                who = await authenticate(request)
                if who is None:
                    return json_error(401, UNKNOWN if bearer_tokens(request.headers) else NOBODY)
                if isinstance(who, User):
                    rights.require(who, right)
                else:
                    require_run(right)
                answered = await handler(request, who, *args, **kwargs)
                if isinstance(answered, HttpResponseBase):
                    return answered
                return answers.json_answer(answered or answers.Nothing())
            except Exception as error:
                return json_error(*describe(error))

        view.body, view.answers = body, declared  # type: ignore[attr-defined]
        view.polled = frozenset({method} if polled else ())  # type: ignore[attr-defined]
        return declares({method: right})(cast(View[P], view))

    return wrap


def json_body(request: HttpRequest) -> dict[str, Any]:
    """The body as a JSON object. Raises BadRequest."""
    if len(request.body) > settings.REQUEST_BYTES:
        raise BadRequest("The request's body is too large.")
    try:
        value = bounded_json.loads(request.body or b"{}")
    except ValueError as error:
        raise BadRequest(f"The request's body is not JSON: {error}") from error
    if not isinstance(value, dict):
        raise BadRequest("The request's body is not a JSON object.")
    return value


def record(result: answers.Answer | Mapping[str, Any]) -> bytes:
    """One line of a stream of records: `{"result": …}`."""
    return to_json({"result": result}, inf_nan_mode="constants") + b"\n"


async def repeated(
    request: HttpRequest,
    look: Callable[[], Sequence[answers.Answer]],
    is_over: Callable[[], bool],
    wait: Callable[[], Awaitable[object]],
) -> AsyncIterator[bytes]:
    """Records of what `look` reads, again after each wait, until there can be no more or the login ends."""
    while True:
        over = await reading(is_over)  # before the read, which then misses nothing
        for found in await reading(look):
            yield record(found)
        if over:
            return
        await wait()
        if await authenticate(request) is None:
            return
        await release_thread()


def ndjson(lines: AsyncIterator[bytes]) -> HttpResponseBase:
    """The lines as they come; what fails once the status was sent is the last of them."""

    async def guarded() -> AsyncIterator[bytes]:
        await release_thread()
        try:
            async for line in lines:
                yield line
        except Exception as error:
            yield json.dumps(error_body(*describe(error))).encode() + b"\n"

    response = StreamingHttpResponse(guarded(), content_type="application/json")
    response["Cache-Control"] = "no-store"
    response["X-Accel-Buffering"] = "no"  # a proxy must not hold lines back
    return response
