"""What a server such as uvicorn runs: `webui.asgi:application`."""

from webui.application import application  # sets Django up: models may be imported from here on

# isort: split
from webui import presence

presence.keep()

__all__ = ["application"]
