"""Each route of every kind says what it asks of whoever calls it: Django's, the runners', sockets, mounts, the proxy.

What the routes then do is in the tables of access. Single sign-on, which is part of a server with a provider alone, has
no routes but those of the login itself, which are open.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import pytest
from django.http import HttpRequest, HttpResponse
from django.urls import URLPattern, URLResolver, get_resolver, path
from rest_framework.request import Request
from starlette.routing import BaseRoute, Mount, Route, Router

from accounts.rights import Right, declared_by
from webui import front
from webui.api.answers import Nothing
from webui.api.views import ApiView
from webui.live import routing
from webui.live.sockets import Socket
from webui.proxy import entry

#: levels of which a right has exactly one; FULL and RUN come beside it, and RUN alone is for runs alone
LEVELS = Right.OPEN | Right.READ | Right.OWN | Right.EDIT | Right.ADMIN


def of_django(patterns: Sequence[URLPattern | URLResolver], above: str = "") -> Iterator[tuple[str, object]]:
    for each in patterns:
        route = above + str(each.pattern)
        if isinstance(each, URLResolver):
            yield from of_django(each.url_patterns, route)
        else:
            yield route, getattr(each.callback, "cls", each.callback)


def of_starlette(routes: Sequence[BaseRoute], above: str = "") -> Iterator[tuple[str, object]]:
    for each in routes:
        assert isinstance(each, Mount | Route), each
        if isinstance(each, Mount) and isinstance(each.app, Router):
            yield from of_starlette(each.app.routes, above + each.path)
        else:
            yield above + each.path, each.app if isinstance(each, Mount) else each.endpoint


def of_sockets() -> Iterator[tuple[str, object]]:
    for each in routing.ROUTES:
        callback: Any = each.callback
        yield str(each.pattern), callback.consumer_class


def unsound(routes: Iterator[tuple[str, object]]) -> list[str]:
    """Routes that declare no right, or none that is one level."""
    return [
        route
        for route, view in routes
        if not (found := declared_by(view))
        or any(right is not Right.RUN and len(right & LEVELS) != 1 for right in found.values())
    ]


def test_every_route_declares_its_right() -> None:
    django = list(of_django(get_resolver().url_patterns))
    before_django = list(of_starlette(front.routes()))
    assert len(django) > 300 and len(before_django) > 15
    assert unsound(iter(django)) == []
    assert unsound(iter(before_django)) == []
    assert unsound(of_sockets()) == []
    assert unsound(iter([(entry.PREFIX, entry.serve)])) == []


def test_every_method_of_the_runners_routes_is_declared() -> None:
    for path_, view in of_starlette(front.routes()):
        methods = next(
            (each.methods for each in front.runner_application.routes
             if isinstance(each, Route) and each.endpoint is view), None
        )  # fmt: skip
        if methods is not None and "*" not in declared_by(view):
            assert set(methods) - {"HEAD"} == set(declared_by(view)), path_


def test_a_route_that_declares_none_is_found() -> None:
    def bare(request: HttpRequest) -> HttpResponse:
        return HttpResponse()

    assert unsound(of_django([path("bare", bare)])) == ["bare"]


def test_a_view_or_a_socket_that_declares_none_cannot_be_written() -> None:
    with pytest.raises(TypeError, match=r"Bare\.rights does not say who may use POST"):

        class Bare(ApiView):
            rights = {"GET": Right.READ}

            def get(self, request: Request) -> Nothing:
                return Nothing()

            def post(self, request: Request) -> Nothing:
                return Nothing()

    with pytest.raises(TypeError, match=r"Deaf\.rights does not say who may open it"):

        class Deaf(Socket):
            pass
