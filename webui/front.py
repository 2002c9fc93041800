"""The web process: runners and static files before Django, pages and REST in Django, sockets in Channels."""

from __future__ import annotations

from typing import cast

from channels.routing import ProtocolTypeRouter
from django.conf import settings
from django.core.handlers.asgi import ASGIHandler
from starlette.responses import JSONResponse
from starlette.routing import Mount, Router
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from webui import docs_site
from webui.assets import Assets
from webui.live.routing import websocket_application
from webui.proxy import entry
from webui.runner_api.proofs import proving
from webui.runner_api.routes import application as runner_application


def bounded(application: ASGIApp) -> ASGIApp:
    """Refuse bodies beyond REQUEST_BYTES before Django writes them to disk, as it does before any login is checked."""

    async def guarded(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await application(scope, receive, send)
            return
        received = 0

        async def counted() -> Message:
            nonlocal received
            message = await receive()
            received += len(message.get("body", b""))
            # Django takes a disconnect as the end of the request and answers nobody
            return message if received <= settings.REQUEST_BYTES else {"type": "http.disconnect"}

        declared = dict(scope["headers"]).get(b"content-length", b"0")
        if declared.isdigit() and int(declared) > settings.REQUEST_BYTES:
            sentence = (
                f"The request has {int(declared):,} bytes; allowed: at most {settings.REQUEST_BYTES:,}."
            )
            await JSONResponse({"message": sentence}, status_code=413)(scope, receive, send)
            return
        await application(scope, counted, send)

    return guarded


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
