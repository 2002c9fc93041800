"""A log as a file: exact bytes, streamed chunk by chunk without a thread or connection between them."""

from __future__ import annotations

from collections.abc import AsyncIterator

from logs import read
from logs.filters import Filters
from logs.lines import raw
from webui.live.threads import reading

LINES_PER_BLOCK = 5000


async def blocks(task_id: str, filters: Filters) -> AsyncIterator[bytes]:
    """The bytes of the lines that the filters leave, up to the newest one when it begins."""
    end, after = await reading(read.last_number, task_id), 0
    while after < end:
        page = await reading(read.forward, task_id, after, filters, LINES_PER_BLOCK)
        block = b"".join(raw(line.text) + b"\n" for line in page.lines if line.number <= end)
        if block:
            yield block
        after = page.upto
