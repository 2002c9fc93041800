"""`/docs/`: the pages that `make setup` has built from docs/ with MkDocs. Anybody may read them: they hold no secrets.

Their theme has a few scripts within its pages, which the policy of our own pages forbids. So these pages have one of
their own that names each of these scripts by its digest; nothing is loaded from any other server.
"""

from __future__ import annotations

import base64
import functools
import hashlib
import re
from pathlib import Path

from django.conf import settings
from starlette.exceptions import HTTPException
from starlette.responses import PlainTextResponse, RedirectResponse, Response
from starlette.routing import BaseRoute, Mount, Route
from starlette.staticfiles import StaticFiles
from starlette.types import Scope

from accounts.rights import Right, declares

_SCRIPT = re.compile(r"<script(?P<attributes>[^>]*)>(?P<content>.*?)</script>", re.DOTALL)
_MISSING = "The documentation is not built here. `make setup` builds it; its sources are in the folder docs/."


class Pages(StaticFiles):
    """The built pages; a folder's address shows its index.html."""

    rights = {"GET": Right.OPEN}

    def __init__(self) -> None:
        super().__init__(directory=settings.DOCS_ROOT, html=True, check_dir=False)

    async def check_config(self) -> None:
        """The folder may be missing: then every page says so."""

    async def get_response(self, path: str, scope: Scope) -> Response:
        try:
            response = await super().get_response(path, scope)
        except HTTPException as error:  # there is no Starlette application around us that would answer
            is_built = Path(settings.DOCS_ROOT, "index.html").is_file()
            sentence = error.detail if is_built else _MISSING
            response = PlainTextResponse(sentence, status_code=error.status_code)
        response.headers["Cache-Control"] = "no-cache"
        response.headers["Content-Security-Policy"] = policy(Path(settings.DOCS_ROOT))
        response.headers["X-Content-Type-Options"] = "nosniff"
        response.headers["X-Frame-Options"] = "DENY"
        response.headers["Referrer-Policy"] = "same-origin"
        return response


def routes() -> list[BaseRoute]:
    """For the web process's router."""

    @declares({"GET": Right.OPEN})
    async def begin(_: object) -> Response:
        return RedirectResponse("/docs/")

    return [Route("/docs", begin), Mount("/docs", Pages())]


def policy(root: Path) -> str:
    """The Content-Security-Policy of the pages in `root`."""
    built = root / "index.html"
    return _policy(root, built.stat().st_mtime_ns if built.is_file() else 0)


@functools.lru_cache(maxsize=2)
def _policy(root: Path, _: int) -> str:
    """Read anew once they are built anew."""
    digests = {digest for page in sorted(root.rglob("*.html")) for digest in _scripts(page.read_text())}
    scripts = " ".join(["'self'", *(f"'sha256-{digest}'" for digest in sorted(digests))])
    return (
        f"default-src 'self'; script-src {scripts}; style-src 'self' 'unsafe-inline'; img-src 'self' data:; "
        "object-src 'none'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'"
    )


def _scripts(page: str) -> list[str]:
    """Digests, in base64, of the scripts that stand in the page itself and would be executed."""
    return [
        base64.b64encode(hashlib.sha256(found["content"].encode()).digest()).decode()
        for found in _SCRIPT.finditer(page)
        if "src=" not in found["attributes"] and "application/json" not in found["attributes"]
    ]
