"""Django over ASGI, which goes to a thread once for each request.

Django's own handler goes there and back for each hook of each middleware, twenty times for a page: milliseconds of
processor time, and twenty waits for a turn. Here a view that blocks runs in one turn together with all its middleware.
"""

from __future__ import annotations

from contextlib import suppress

from asgiref.sync import iscoroutinefunction, sync_to_async
from django.core.handlers.asgi import ASGIHandler
from django.core.handlers.base import BaseHandler
from django.http import HttpRequest, HttpResponseBase
from django.urls import Resolver404, ResolverMatch, resolve


class _Resolved(BaseHandler):
    """Looks an address up among all routes only once."""

    def resolve_request(self, request: HttpRequest) -> ResolverMatch:
        return request.resolver_match or super().resolve_request(request)


class Handler(_Resolved, ASGIHandler):
    """Has the middleware around async views; `_blocking` has it around those that block."""

    def __init__(self) -> None:
        super().__init__()
        self._blocking = _Resolved()
        self._blocking.load_middleware()

    async def get_response_async(self, request: HttpRequest) -> HttpResponseBase:
        with suppress(Resolver404):
            request.resolver_match = resolve(request.path_info)
        if request.resolver_match and iscoroutinefunction(request.resolver_match.func):
            return await super().get_response_async(request)
        return await sync_to_async(self._blocking.get_response)(request)
