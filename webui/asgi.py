"""What a server such as uvicorn runs: `webui.asgi:application`."""

from webui import presence
from webui.application import application

presence.keep()

__all__ = ["application"]
