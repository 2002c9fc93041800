"""Tables as CSV files, made while they are sent."""

from __future__ import annotations

from collections.abc import Generator

from django.http import StreamingHttpResponse

from webui.waiting.threads import stepped


def csv_file(name: str, blocks: Generator[bytes]) -> StreamingHttpResponse:
    """`<name>.csv`, which no browser keeps."""
    headers = {"Cache-Control": "no-store", "Content-Disposition": f'attachment; filename="{name}.csv"'}
    return StreamingHttpResponse(stepped(blocks), content_type="text/csv; charset=utf-8", headers=headers)
