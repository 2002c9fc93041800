"""The web process: runners and static files before Django, pages and REST in Django, sockets in Channels."""

from __future__ import annotations

from importlib import import_module
from io import BytesIO
from typing import Any, cast

from channels.routing import ProtocolTypeRouter
from django.conf import settings
from django.contrib.auth import get_user
from django.core.handlers.asgi import ASGIHandler, ASGIRequest
from starlette.responses import JSONResponse
from starlette.routing import Mount, Router
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from webui import docs_site
from webui.api.authentication import bearer_tokens, by_token
from webui.assets import Assets
from webui.live.routing import websocket_application
from webui.proxy import entry
from webui.runner_api.proofs import proving
from webui.runner_api.routes import application as runner_application
from webui.waiting.threads import reading

#: where people log in: nothing long is sent there
_LOGINS = frozenset({"/login", "/api/v1/auth/login"})


def bounded(application: ASGIApp) -> ASGIApp:
    """Refuse bodies that are too large before Django writes them to disk, as it does before any login is checked.

    Beyond OPEN_REQUEST_BYTES whoever sends must be logged in, and not be logging in; nobody sends more than
    REQUEST_BYTES.
    """

    async def guarded(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await application(scope, receive, send)
            return
        received, limit = 0, settings.OPEN_REQUEST_BYTES

        async def allows(size: int) -> bool:
            nonlocal limit
            if size > limit == settings.OPEN_REQUEST_BYTES and await _is_logged_in(scope):
                limit = settings.REQUEST_BYTES
            return size <= limit

        async def counted() -> Message:
            nonlocal received
            message = await receive()
            received += len(message.get("body", b""))
            # Django takes a disconnect as the end of the request and answers nobody
            return message if await allows(received) else {"type": "http.disconnect"}

        declared = dict(scope["headers"]).get(b"content-length", b"0")
        if declared.isdigit() and not await allows(int(declared)):
            login = " without a login" if limit < settings.REQUEST_BYTES else ""
            sentence = f"The request has {int(declared):,} bytes; allowed{login}: at most {limit:,}."
            await JSONResponse({"message": sentence}, status_code=413)(scope, receive, send)
            return
        await application(scope, counted, send)

    return guarded


async def _is_logged_in(scope: Scope) -> bool:
    if scope["path"] in _LOGINS:
        return False
    request = ASGIRequest(cast(Any, scope), BytesIO())
    if bearer_tokens(request):
        return await reading(by_token, request) is not None
    return await reading(_has_session, request)


def _has_session(request: ASGIRequest) -> bool:
    """The session of the cookie, as Django's middleware, which comes later, will find it."""
    engine = import_module(settings.SESSION_ENGINE)
    request.session = engine.SessionStore(request.COOKIES.get(settings.SESSION_COOKIE_NAME))
    return get_user(request).is_authenticated


def build(django_application: ASGIHandler) -> ProtocolTypeRouter:
    """The ASGI application. Nothing starts or ends with it; Starlette's router says so to those who ask."""
    http = Router(
        [Mount("/runner/v1", runner_application), Mount("/static", Assets()), *docs_site.routes()],
        redirect_slashes=False,
        default=bounded(cast(ASGIApp, django_application)),
    )
    proved = entry.before(proving(http))  # what a task's own pages answer is the task's, and is never proved
    return ProtocolTypeRouter(
        {"http": proved, "lifespan": http, "websocket": entry.before(websocket_application)}
    )
