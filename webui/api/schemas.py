"""JSON Schemas of the configs, for editors: public, and cached until the server is another version.

In a YAML file: `# yaml-language-server: $schema=http://SERVER/api/v1/schemas/experiment-config`.
"""

from __future__ import annotations

import hashlib
import json
from functools import cache

from django.utils.cache import patch_cache_control
from django.utils.http import parse_etags
from rest_framework.request import Request
from rest_framework.response import Response

from accounts.rights import Right
from commands.config import schema_of_config
from experiments.config import schema as experiments
from webui.api.answers import Answer
from webui.api.errors import Missing
from webui.api.views import ApiView, Json

_FRESH_SECONDS = 3600


@cache
def documents() -> dict[str, Json]:
    """Name → schema."""
    return {
        "experiment-config": experiments.of_config(),
        "template-config": experiments.of_template(),
        "command-config": schema_of_config(),
    }


@cache
def _tag(name: str) -> str:
    digest = hashlib.sha256(json.dumps(documents()[name], sort_keys=True).encode())
    return f'"{digest.hexdigest()[:32]}"'


class SchemaRow(Answer):
    name: str
    title: str
    path: str


class SchemasAnswer(Answer):
    schemas: list[SchemaRow]


class Schemas(ApiView):
    """The names of the config schemas."""

    rights = {"GET": Right.OPEN}

    def get(self, request: Request) -> SchemasAnswer:
        rows = [
            SchemaRow(name=name, title=found["title"], path=f"/api/v1/schemas/{name}")
            for name, found in documents().items()
        ]
        return SchemasAnswer(schemas=rows)


class OneSchema(ApiView):
    """The JSON Schema (draft 7) of experiment-config, template-config or command-config."""

    rights = {"GET": Right.OPEN}
    answers = {"GET": Json}

    def get(self, request: Request, name: str) -> Response:
        if name not in documents():
            raise Missing(f"there is no schema {name}; allowed: {', '.join(documents())}")
        known = _tag(name) in parse_etags(request.headers.get("If-None-Match", ""))
        response = Response(status=304) if known else Response(documents()[name])
        response["ETag"] = _tag(name)
        patch_cache_control(response, public=True, max_age=_FRESH_SECONDS)
        return response
