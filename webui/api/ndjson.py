"""Streams of records in the dialect: `{"result": …}` or an error, one a line."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Mapping
from typing import Any

from django.http import HttpResponseBase, StreamingHttpResponse
from pydantic_core import to_json

from webui.api.answers import Answer
from webui.api.errors import body, describe


def record(result: Answer | Mapping[str, Any]) -> bytes:
    """One line."""
    return to_json({"result": result}, inf_nan_mode="constants") + b"\n"


def ndjson(lines: AsyncIterator[bytes]) -> HttpResponseBase:
    """The lines as they come; what fails once the status was sent is the last of them."""

    async def guarded() -> AsyncIterator[bytes]:
        try:
            async for line in lines:
                yield line
        except Exception as error:
            yield json.dumps(body(*describe(error))).encode() + b"\n"

    response = StreamingHttpResponse(guarded(), content_type="application/json")
    response["Cache-Control"] = "no-store"
    response["X-Accel-Buffering"] = "no"  # a proxy must not hold lines back
    return response
