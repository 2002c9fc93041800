"""The sockets, behind their login."""

from __future__ import annotations

from channels.routing import URLRouter

websocket_application = URLRouter([])
