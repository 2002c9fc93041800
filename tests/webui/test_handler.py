"""How often one request goes to a thread."""

import asyncio
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import pytest

from webui.application import application

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.mark.parametrize(("path", "status"), [("/login", 200), ("/api/v1/master", 200), ("/nothing", 404)])
def test_a_request_whose_view_blocks_goes_to_a_thread_once_and_to_begin_and_end(
    monkeypatch: pytest.MonkeyPatch, path: str, status: int
) -> None:
    turns = 0
    submit = ThreadPoolExecutor.submit

    def counted(self: ThreadPoolExecutor, *args: Any, **options: Any) -> Any:
        nonlocal turns
        turns += 1
        return submit(self, *args, **options)

    async def ask() -> httpx.Response:
        transport = httpx.ASGITransport(application)
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
            return await client.get(path)

    monkeypatch.setattr(ThreadPoolExecutor, "submit", counted)
    answer = asyncio.run(ask())
    assert answer.status_code == status
    assert turns <= 3
