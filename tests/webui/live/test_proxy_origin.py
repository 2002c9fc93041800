"""Which requests are of the origin of tasks, which of one task's, and which names the console has."""

from __future__ import annotations

import asyncio
import socket
from typing import Any

import pytest
from django.conf import LazySettings
from websockets.asyncio.server import ServerConnection, serve

from webui.proxy import entry
from webui.proxy import origin as proxy_origin
from webui.proxy.access import ProxyAnswer, Visit, Visitor
from webui.proxy.sockets import Tunnelled


@pytest.mark.parametrize(
    ("origin", "host", "here", "of_ab"),
    [
        ("", "console", False, False),
        ("https://tasks.example.com", "Tasks.Example.com", True, True),
        ("https://tasks.example.com:8443", "tasks.example.com", False, False),
        ("https://*.tasks.example.com", "ab.tasks.example.com", True, True),
        ("https://*.tasks.example.com", "cd.tasks.example.com", True, False),
        ("https://*.tasks.example.com", "x.ab.tasks.example.com", False, False),
        ("https://*.tasks.example.com", "ab.tasks.example.com.evil.example", False, False),
        ("https://*.tasks.example.com", "eviltasks.example.com", False, False),
    ],
)
def test_a_request_is_of_the_origin_that_its_host_names(
    settings: LazySettings, origin: str, host: str, here: bool, of_ab: bool
) -> None:
    settings.PROXY_ORIGIN = origin
    assert proxy_origin.is_here({"host": host}) is here
    assert proxy_origin.is_of_task({"host": host}, "ab") is of_ab


def test_pages_open_windows_only_where_each_task_has_its_own_origin(settings: LazySettings) -> None:
    for origin, host, may in (
        ("", "console", False),
        ("https://tasks.example.com", "tasks.example.com", False),  # the window could be another task's
        ("https://*.tasks.example.com", "ab.tasks.example.com", True),
        ("https://*.tasks.example.com", "console", False),
    ):
        settings.PROXY_ORIGIN = origin
        scope: dict[str, Any] = {"scheme": "https", "path": "/proxy/ab/", "query_string": b""}
        asked = entry.asked_of({**scope, "headers": [(b"host", host.encode())]})
        assert asked.alone is may


def test_tasks_lead_back_to_no_address_that_is_none_of_the_console(settings: LazySettings) -> None:
    settings.ALLOWED_HOSTS = ["console.example.com"]
    hosts = ("Console.example.com:8443", "evil.example", "console.example.com@evil.example", "")
    assert [proxy_origin.is_of_console({"host": host}) for host in hosts] == [True, False, False, False]
    settings.ALLOWED_HOSTS = ["*"]
    assert [proxy_origin.is_of_console({"host": host}) for host in hosts] == [True, True, False, False]


@pytest.mark.parametrize(("behind_a_front", "told"), [(True, "https"), (False, "http")])
def test_a_program_is_told_of_the_scheme_that_the_front_says_of_a_websocket(
    settings: LazySettings, behind_a_front: bool, told: str
) -> None:
    settings.SECURE_PROXY_SSL_HEADER = ("HTTP_X_FORWARDED_PROTO", "https") if behind_a_front else None
    headers = [
        (b"host", b"console:8443"),
        (b"x-forwarded-proto", b"https"),
        (b"origin", b"https://console:8443"),
    ]
    scope: dict[str, Any] = {
        "type": "websocket", "scheme": "ws", "path": "/proxy/ab/echo", "query_string": b"", "headers": headers
    }  # fmt: skip
    asked = entry.asked_of(scope)
    assert asked.origin == f"{told}://console:8443"

    async def tell(connection: ServerConnection) -> None:
        assert connection.request is not None
        await connection.send(" ".join(connection.request.headers.get_all("X-Forwarded-Proto")))

    async def nothing(*_: Any) -> Any:
        raise AssertionError("a browser's side is not needed to dial")

    async def ask() -> str:
        async with serve(tell, "127.0.0.1", 0) as server:
            connected = socket.create_connection(next(iter(server.sockets)).getsockname())
            connected.setblocking(False)
            visitor = Visitor(asked.service_id, asked.headers, asked.apart)
            tunnelled = Tunnelled(visitor, asked.base, asked.rest, asked.scheme, scope, nothing, nothing)
            upstream = await tunnelled.dial(connected, Visit(ProxyAnswer.OPEN), frozenset())
            async with upstream:
                return str(await upstream.recv())

    assert asyncio.run(ask()) == told
