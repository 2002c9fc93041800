"""The web process: runners and static files before Django, pages and REST in Django, sockets in Channels."""

from __future__ import annotations

from typing import cast

from channels.routing import ProtocolTypeRouter
from django.core.handlers.asgi import ASGIHandler
from starlette.routing import Mount, Router
from starlette.types import ASGIApp

from webui.assets import Assets
from webui.live.routing import websocket_application
from webui.runner_api.routes import application as runner_application


def build(django_application: ASGIHandler) -> ProtocolTypeRouter:
    """The ASGI application. Nothing starts or ends with it; Starlette's router says so to those who ask."""
    http = Router(
        [Mount("/runner/v1", runner_application), Mount("/static", Assets())],
        redirect_slashes=False,
        default=cast(ASGIApp, django_application),
    )
    return ProtocolTypeRouter({"http": http, "lifespan": http, "websocket": websocket_application})
