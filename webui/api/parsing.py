"""Request bodies: JSON whatever the Content-Type says, because the published client sends none."""

from __future__ import annotations

from collections.abc import Mapping
from typing import IO, Any

from django.conf import settings
from rest_framework.parsers import BaseParser

from trainmaster import bounded_json, quantities
from webui.api.errors import BadRequest, TooLarge


class DialectParser(BaseParser):
    media_type = "*/*"

    def parse(
        self, stream: IO[Any], media_type: str | None = None, parser_context: Mapping[str, Any] | None = None
    ) -> Any:
        limit = settings.DATA_UPLOAD_MAX_MEMORY_SIZE or 0
        raw = stream.read(limit + 1)
        if len(raw) > limit:
            raise TooLarge(f"The request's body is larger than {quantities.size(limit)}.")
        if not raw.strip():
            return {}
        try:
            return bounded_json.loads(raw)
        except (ValueError, UnicodeDecodeError) as error:
            raise BadRequest(f"The request's body is not JSON: {error}") from error
