"""Addresses of the console's own sockets, and how much their clients may say at once."""

from __future__ import annotations

from channels.routing import URLRouter
from django.conf import settings
from django.urls import path, re_path
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from accounts.refusals import Code, Refusal
from accounts.rights import Right
from webui.live.log_viewer import LogViewer
from webui.live.page_topics import PageTopics
from webui.live.sockets import Socket
from webui.live.terminal import Terminal

#: the code by which a WebSocket ends when a message is too large (RFC 6455, 7.4.1)
TOO_LARGE = 1009


class Nothing(Socket):
    """There is no socket at this address."""

    rights = {"GET": Right.READ}

    async def serve(self) -> None:
        raise Refusal("There is no socket at this address.", Code.NOT_FOUND)


def short_messages(application: ASGIApp) -> ASGIApp:
    """Close sockets whose client sends more than SOCKET_MESSAGE_BYTES at once."""

    async def guarded(scope: Scope, receive: Receive, send: Send) -> None:
        async def bounded_receive() -> Message:
            message = await receive()
            sent = len(message.get("bytes") or b"") + len(message.get("text") or "")
            if sent <= settings.SOCKET_MESSAGE_BYTES:
                return message
            await send({"type": "websocket.close", "code": TOO_LARGE})
            return {"type": "websocket.disconnect", "code": TOO_LARGE}

        await application(scope, bounded_receive, send)

    return guarded


ROUTES = [
    path("ws/tasks/<str:task_id>/logs", LogViewer.as_asgi()),
    path("ws/tasks/<str:task_id>/terminal", Terminal.as_asgi()),
    path("ws/pages", PageTopics.as_asgi()),
    re_path(r"", Nothing.as_asgi()),
]
websocket_application = short_messages(URLRouter(ROUTES))
