"""`/static/`: the collected files, or the sources themselves while one develops."""

from __future__ import annotations

import os
from pathlib import Path

from django.conf import settings
from django.contrib.staticfiles import finders
from starlette.responses import Response
from starlette.staticfiles import StaticFiles
from starlette.types import Scope


class Assets(StaticFiles):
    """Answers with an ETag; browsers ask again each time and mostly hear 304, so an update shows at once."""

    def __init__(self) -> None:
        super().__init__(directory=settings.STATIC_ROOT, check_dir=False)

    def lookup_path(self, path: str) -> tuple[str, os.stat_result | None]:
        if settings.DEBUG or not Path(settings.STATIC_ROOT).is_dir():
            found = finders.find(path) if path not in {"", "."} else None
            return (found, Path(found).stat()) if isinstance(found, str) else ("", None)
        return super().lookup_path(path)

    async def get_response(self, path: str, scope: Scope) -> Response:
        response = await super().get_response(path, scope)
        response.headers["Cache-Control"] = "no-cache"
        response.headers["X-Content-Type-Options"] = "nosniff"
        return response
