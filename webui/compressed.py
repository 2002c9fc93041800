"""Pages, and the data of their charts, are sent compressed."""

from __future__ import annotations

from django.http import HttpRequest
from django.http.response import HttpResponseBase
from django.middleware.gzip import GZipMiddleware


class CompressedPages(GZipMiddleware):
    """Django's own, which pads so that sizes tell no secret; not REST, and no stream, which arrives as it is made."""

    def process_response(self, request: HttpRequest, response: HttpResponseBase) -> HttpResponseBase:
        if response.streaming or request.path.startswith("/api/"):
            return response
        return super().process_response(request, response)
