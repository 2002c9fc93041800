"""`/static/`: the collected files, or the sources themselves while one develops."""

from __future__ import annotations

import os
import re
from mimetypes import guess_type
from pathlib import Path

from django.conf import settings
from django.contrib.staticfiles import finders
from django.core.exceptions import SuspiciousFileOperation
from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.responses import FileResponse, PlainTextResponse, Response
from starlette.staticfiles import NotModifiedResponse, StaticFiles
from starlette.types import Scope

from accounts.rights import Right
from webui import collected

KEPT = "public, max-age=31536000, immutable"
_VERSION = re.compile(rf"[0-9a-f]{{{collected.VERSION_DIGITS}}}/")


class Assets(StaticFiles):
    """Files under the present version are kept by browsers for good; of other addresses they ask each time.

    A script or style sheet that set-up has packed is sent in that form, under its own address. Where the collected
    files have been compressed, browsers get what they take: Brotli (large files alone; browsers ask for it over TLS
    and on loopback), gzip, or the file as it is.
    """

    rights = {"GET": Right.OPEN}

    def __init__(self) -> None:
        super().__init__(directory=settings.STATIC_ROOT, check_dir=False)

    async def check_config(self) -> None:
        """The folder may be missing: then the sources are served."""

    def lookup_path(self, path: str) -> tuple[str, os.stat_result | None]:
        if settings.DEBUG or not Path(settings.STATIC_ROOT).is_dir():
            return _source(path)
        packed, found = super().lookup_path(f"{collected.PACKED}/{path}")
        return (packed, found) if found else super().lookup_path(path)

    async def get_response(self, path: str, scope: Scope) -> Response:
        named = _VERSION.match(path)
        is_present = named is not None and path[: collected.VERSION_DIGITS] == collected.version()
        try:
            response = await super().get_response(path[named.end() :] if named else path, scope)
        except HTTPException as error:  # there is no Starlette application around us that would answer
            return PlainTextResponse(error.detail, status_code=error.status_code)
        response.headers["Cache-Control"] = KEPT if is_present else "no-cache"
        response.headers["X-Content-Type-Options"] = "nosniff"
        return response

    def file_response(
        self,
        full_path: str | os.PathLike[str],
        stat_result: os.stat_result,
        scope: Scope,
        status_code: int = 200,
    ) -> Response:
        """The shortest form of the file that the browser takes."""
        headers = Headers(scope=scope)
        taken = _codings(headers.get("accept-encoding", ""))
        forms = _compressed(full_path, stat_result)
        name = next((name for name in forms if name in taken), None)
        path = forms[name] if name else Path(full_path)
        response = FileResponse(
            path, status_code, media_type=guess_type(str(full_path))[0], stat_result=path.stat()
        )
        if name:
            response.headers["Content-Encoding"] = name
        if forms:
            response.headers["Vary"] = "Accept-Encoding"
        if self.is_not_modified(response.headers, headers):
            return NotModifiedResponse(response.headers)
        return response


def _codings(accepted: str) -> set[str]:
    """The content codings that an Accept-Encoding header names and does not refuse."""
    parts = [part.replace(" ", "").lower().partition(";q=") for part in accepted.split(",")]
    return {name for name, _, weight in parts if weight not in {"0", "0.0", "0.00", "0.000"}}


def _compressed(path: str | os.PathLike[str], stat_result: os.stat_result) -> dict[str, Path]:
    """The file's compressed forms by coding, those that are as new as it is."""
    forms = {name: Path(f"{os.fspath(path)}{ending}") for name, ending in collected.ENCODINGS.items()}
    return {
        name: form
        for name, form in forms.items()
        if form.is_file() and form.stat().st_mtime_ns >= stat_result.st_mtime_ns
    }


def _source(path: str) -> tuple[str, os.stat_result | None]:
    """The file of this path among the apps' and the project's static files."""
    try:
        found = finders.find(path) if path not in {"", "."} else None
    except SuspiciousFileOperation:
        found = None
    return (found, Path(found).stat()) if isinstance(found, str) else ("", None)
