"""Requests of one user that come at once: a few are worked on, the rest wait, and others are not kept waiting."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from asgiref.testing import ApplicationCommunicator

from webui import request_bounds
from webui.waiting import turns


@pytest.fixture
def played(monkeypatch: pytest.MonkeyPatch, settings: Any) -> Callable[..., Any]:
    """Plays with an application in which two requests of a user may be at work, and says what it returns."""
    settings.REQUESTS_AT_ONCE_PER_USER = 2

    async def login_of(scope: Any) -> str:
        return str(scope["path"]).strip("/")

    monkeypatch.setattr(request_bounds, "_login_of", login_of)

    def play(view: Callable[[Any], Awaitable[None]], steps: Callable[[Callable[[str], Any]], Any]) -> Any:
        async def application(scope: Any, receive: Any, send: Any) -> None:
            if (await receive())["type"] == "http.disconnect":
                return  # as Django does
            await view(send)
            await send({"type": "http.response.body", "body": b""})

        async def playing() -> Any:
            bounded = request_bounds.Bounded(application)

            def begun(user: str) -> ApplicationCommunicator:
                headers = [(b"authorization", f"Bearer {user}".encode())] if user else []
                scope = {"type": "http", "method": "POST", "path": f"/{user}", "headers": headers}
                request = ApplicationCommunicator(bounded, scope)
                request.input_queue.put_nowait({"type": "http.request", "body": b"", "more_body": False})
                return request

            return await steps(begun)

        return asyncio.run(playing())

    return play


START = {"type": "http.response.start", "status": 200, "headers": []}


async def status(request: ApplicationCommunicator, seconds: float = 5) -> int:
    return int((await request.receive_output(seconds))["status"])


def test_further_requests_wait_and_those_of_others_do_not(played: Any) -> None:
    async def steps(begun: Any) -> list[int]:
        mine = [begun("ada") for _ in range(4)]
        for request in mine:
            await request.receive_nothing(0.01)
        at_work.append(len(started))
        others = [begun("bob"), begun(""), begun(""), begun("")]
        for request in others:
            await request.receive_nothing(0.01)
        at_work.append(len(started))
        go_on.set()
        return [await status(request) for request in [*mine, *others]]

    started: list[int] = []
    at_work: list[int] = []
    go_on = asyncio.Event()

    async def view(send: Any) -> None:
        started.append(1)
        await go_on.wait()
        await send(START)

    assert played(view, steps) == [200] * 8
    assert at_work == [2, 6]


@pytest.mark.parametrize("kind", ["stream", "poll"])
def test_a_stream_and_a_request_that_waits_hold_no_turn(played: Any, kind: str) -> None:
    async def view(send: Any) -> None:
        if kind == "stream":
            await send(START)
            await asyncio.sleep(30)
        turns.give_back()
        await go_on.wait()
        await send(START)

    async def steps(begun: Any) -> list[int]:
        requests = [begun("ada") for _ in range(5)]
        if kind == "poll":
            await requests[0].receive_nothing(0.01)
            go_on.set()
        return [await status(request, 2) for request in requests]

    go_on = asyncio.Event()
    assert played(view, steps) == [200] * 5


def test_a_wait_that_takes_too_long_ends_with_a_sentence(played: Any, settings: Any) -> None:
    async def view(send: Any) -> None:
        await go_on.wait()
        await send(START)

    async def steps(begun: Any) -> list[Any]:
        first, second, third = begun("ada"), begun("ada"), begun("ada")
        for request in (first, second):
            await request.receive_nothing(0.01)
        refused = await status(third)
        sentence = (await third.receive_output(1))["body"]
        go_on.set()
        return [
            refused,
            b"more requests under way than the 2" in sentence,
            await status(first),
            await status(second),
        ]

    settings.TURN_SECONDS = 0.05
    go_on = asyncio.Event()
    assert played(view, steps) == [429, True, 200, 200]
