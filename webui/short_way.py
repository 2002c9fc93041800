"""The short way to a view of the REST dialect, for requests that programs send again and again.

Most of what Django does with a request serves browsers: its middleware hops between threads for sessions, CSRF,
messages and pages, and each request gets a thread and a connection of its own. A program sends a token and needs none
of that, so this module calls the view itself, which costs a tenth. Views allow it by `polled`. The view, its rights,
its errors and its answer are the same on both ways. A request with a cookie or a large body, or to a host or scheme
that Django turns away, takes the long way.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from functools import cache
from io import BytesIO
from typing import Any, cast

from csp.middleware import CSPMiddleware
from django.conf import settings
from django.core.exceptions import DisallowedHost
from django.core.handlers.asgi import ASGIRequest
from django.core.handlers.exception import response_for_exception
from django.http import HttpRequest, HttpResponse
from django.middleware.clickjacking import XFrameOptionsMiddleware
from django.middleware.security import SecurityMiddleware
from django.urls import ResolverMatch, URLPattern
from starlette.datastructures import Headers
from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Receive, Scope, Send

from events.origin import asked_from
from webui import client_address
from webui.api.authentication import bearer_tokens
from webui.waiting.threads import asking

#: the middleware whose headers these answers have, too
_GUARDS = (SecurityMiddleware, XFrameOptionsMiddleware, CSPMiddleware)


class ShortWay:
    """In front of Django; what it does not take itself, it hands on."""

    def __init__(self, django: ASGIApp) -> None:
        self._django = django

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        body = BytesIO()
        if not _is_small(scope) or (match := _match(scope)) is None:
            await self._django(scope, receive, send)
            return
        request = ASGIRequest(cast(Any, scope), body)
        if not _is_welcome(request):
            await self._django(scope, receive, send)
            return
        try:
            await _read(receive, body)
            with asked_from(client_address.exact(request)):
                answer = await _answer(request, match, receive)
        except ClientDisconnect:  # or its turn has not come, which webui.request_bounds answers
            return
        await _send(request, answer, send)


def _is_small(scope: Scope) -> bool:
    """Whether it comes from a program, by a token, and brings little."""
    headers = Headers(scope=scope)
    size = headers.get("content-length", "0")
    return (
        scope["type"] == "http"
        and "cookie" not in headers
        and "transfer-encoding" not in headers
        and size.isdecimal()
        and int(size) <= settings.OPEN_REQUEST_BYTES
        and bool(bearer_tokens(headers))
    )


def _match(scope: Scope) -> ResolverMatch | None:
    path, method = scope["path"].removeprefix("/"), scope["method"]
    for pattern, methods in _polled():
        if method in methods and (found := pattern.resolve(path)):
            return found
    return None


@cache
def _polled() -> list[tuple[URLPattern, frozenset[str]]]:
    """The addresses of views that allow it, with the methods."""
    from webui.api import async_routes, urls  # they load all views

    found = []
    for pattern in (*async_routes.urlpatterns, *urls.urlpatterns):
        view = pattern.callback
        if methods := getattr(getattr(view, "cls", view), "polled", None):
            found.append((pattern, methods))
    return found


def _is_welcome(request: HttpRequest) -> bool:
    """Whether Django would neither refuse the host nor lead on to TLS."""
    try:
        request.get_host()
    except DisallowedHost:
        return False
    return request.is_secure() or not settings.SECURE_SSL_REDIRECT


async def _read(receive: Receive, body: BytesIO) -> None:
    more = True
    while more:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise ClientDisconnect
        body.write(message.get("body", b""))
        more = message.get("more_body", False)
    body.seek(0)


async def _answer(request: HttpRequest, match: ResolverMatch, receive: Receive) -> HttpResponse:
    view: Any = match.func
    try:
        if asyncio.iscoroutinefunction(view):
            request.has_no_thread = True  # type: ignore[attr-defined]
            return await _unless_gone(view(request, **match.kwargs), receive)
        return await asking(lambda: view(request, **match.kwargs).render())
    except ClientDisconnect:
        raise
    except Exception as error:
        return response_for_exception(request, error)


async def _unless_gone(answer: Awaitable[HttpResponse], receive: Receive) -> HttpResponse:
    """The answer of a view that may wait. Raises ClientDisconnect when the client hangs up meanwhile."""
    answering, gone = asyncio.ensure_future(answer), asyncio.ensure_future(receive())
    try:
        await asyncio.wait({answering, gone}, return_when=asyncio.FIRST_COMPLETED)
        if not answering.done():
            raise ClientDisconnect
        return answering.result()
    finally:
        answering.cancel()
        gone.cancel()


async def _send(request: HttpRequest, answer: HttpResponse, send: Send) -> None:
    headers = {**_guards(request), **answer.headers, "Content-Length": str(len(answer.content))}
    sent = [(name.lower().encode("latin-1"), value.encode("latin-1")) for name, value in headers.items()]
    await send({"type": "http.response.start", "status": answer.status_code, "headers": sent})
    await send({"type": "http.response.body", "body": answer.content})


def _guards(request: HttpRequest) -> dict[str, str]:
    """The headers by which middleware guards every answer; the same ones for all, but for TLS."""
    known = _known_guards.get(request.is_secure())
    if known is None:
        answer = HttpResponse()
        for kind in _GUARDS:
            kind(lambda _: answer).process_response(request, answer)
        known = {name: value for name, value in answer.headers.items() if name != "Content-Type"}
        _known_guards[request.is_secure()] = known
    return known


_known_guards: dict[bool, dict[str, str]] = {}
