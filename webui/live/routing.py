"""Addresses of the sockets."""

from __future__ import annotations

from channels.routing import URLRouter
from django.urls import path, re_path

from webui.live.log_viewer import LogViewer
from webui.live.page_topics import PageTopics
from webui.live.sockets import NOT_FOUND, Closed, Socket


class Nothing(Socket):
    """There is no socket at this address."""

    async def serve(self) -> None:
        raise Closed(NOT_FOUND)


websocket_application = URLRouter(
    [
        path("ws/tasks/<str:task_id>/logs", LogViewer.as_asgi()),
        path("ws/pages", PageTopics.as_asgi()),
        re_path(r"", Nothing.as_asgi()),
    ]
)
