"""`/static/`: the collected files, or the sources themselves while one develops."""

from __future__ import annotations

import os
from pathlib import Path

from django.conf import settings
from django.contrib.staticfiles import finders
from django.core.exceptions import SuspiciousFileOperation
from starlette.exceptions import HTTPException
from starlette.responses import PlainTextResponse, Response
from starlette.staticfiles import StaticFiles
from starlette.types import Scope


class Assets(StaticFiles):
    """Answers with an ETag; browsers ask again each time and mostly hear 304, so an update shows at once."""

    def __init__(self) -> None:
        super().__init__(directory=settings.STATIC_ROOT, check_dir=False)

    async def check_config(self) -> None:
        """The folder may be missing: then the sources are served."""

    def lookup_path(self, path: str) -> tuple[str, os.stat_result | None]:
        if settings.DEBUG or not Path(settings.STATIC_ROOT).is_dir():
            return _source(path)
        return super().lookup_path(path)

    async def get_response(self, path: str, scope: Scope) -> Response:
        try:
            response = await super().get_response(path, scope)
        except HTTPException as error:  # there is no Starlette application around us that would answer
            return PlainTextResponse(error.detail, status_code=error.status_code)
        response.headers["Cache-Control"] = "no-cache"
        response.headers["X-Content-Type-Options"] = "nosniff"
        return response


def _source(path: str) -> tuple[str, os.stat_result | None]:
    """The file of this path among the apps' and the project's static files."""
    try:
        found = finders.find(path) if path not in {"", "."} else None
    except SuspiciousFileOperation:
        found = None
    return (found, Path(found).stat()) if isinstance(found, str) else ("", None)
