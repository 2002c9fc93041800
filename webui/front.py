"""The web process: runners and static files before Django, pages and REST in Django, sockets in Channels."""

from __future__ import annotations

from typing import cast

from channels.routing import ProtocolTypeRouter
from django.core.handlers.asgi import ASGIHandler
from starlette.routing import BaseRoute, Mount, Router
from starlette.types import ASGIApp

from webui import docs_site
from webui.assets import Assets
from webui.live.routing import websocket_application
from webui.proxy import entry
from webui.request_bounds import Bounded
from webui.runner_api.proofs import proving
from webui.runner_api.routes import application as runner_application
from webui.short_way import ShortWay


def routes() -> list[BaseRoute]:
    """What is answered before Django."""
    return [Mount("/runner/v1", runner_application), Mount("/static", Assets()), *docs_site.routes()]


def build(django_application: ASGIHandler) -> ProtocolTypeRouter:
    """The ASGI application. Nothing starts or ends with it; Starlette's router says so to those who ask."""
    http = Router(
        routes(), redirect_slashes=False, default=Bounded(ShortWay(cast(ASGIApp, django_application)))
    )
    proved = entry.before(proving(http))  # what a task's own pages answer is the task's, and is never proved
    return ProtocolTypeRouter(
        {"http": proved, "lifespan": http, "websocket": entry.before(websocket_application)}
    )
