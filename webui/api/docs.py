"""The API's own description: OpenAPI for programs, one page for people."""

from __future__ import annotations

import json
from functools import cache
from typing import Any

from django.contrib.auth.decorators import login_required
from django.http import HttpRequest, HttpResponse
from drf_spectacular.generators import SchemaGenerator
from rest_framework.request import Request
from rest_framework.response import Response

from webui.api import answers, examples
from webui.api.async_routes import described
from webui.api.views import ApiView, Json
from webui.pages.frame import show

_METHODS = ("get", "post", "put", "patch", "delete")


@cache
def schema() -> Json:
    """The OpenAPI document; it does not change while the process runs."""
    from webui.api import urls

    generator = SchemaGenerator(patterns=urls.urlpatterns)  # type: ignore[no-untyped-call]
    document: Json = generator.get_schema(request=None, public=True)  # type: ignore[no-untyped-call]
    for path, operations in described().items():
        document["paths"].setdefault(path, {}).update(operations)
    answers.hoist(document)
    examples.add(document)
    plain: Json = json.loads(json.dumps(document, default=str))
    return plain


class OpenApi(ApiView):
    """This description."""

    answers = {"GET": Json}

    def get(self, request: Request) -> Response:
        return Response(schema())


@login_required
def page(request: HttpRequest) -> HttpResponse:
    """Every path with its methods, parameters and body, by resource."""
    return show(request, "api_docs", {"groups": _groups(schema())}, room="REST API")


def _groups(document: Json) -> list[tuple[str, list[Json]]]:
    groups: dict[str, list[Json]] = {}
    for path, operations in sorted(document["paths"].items()):
        for method in _METHODS:
            if method in operations:
                operation = operations[method]
                groups.setdefault(operation["tags"][0], []).append(_row(document, path, method, operation))
    return [(name.replace("_", " ").capitalize(), rows) for name, rows in sorted(groups.items())]


def _row(document: Json, path: str, method: str, operation: Json) -> Json:
    body = operation.get("requestBody", {}).get("content", {})
    media: Json = next(iter(body.values()), Json())
    content: Json = media.get("schema", {})
    return {
        "method": method.upper(),
        "path": path,
        "text": operation.get("description", ""),
        "query": [
            parameter["name"] for parameter in operation.get("parameters", []) if parameter["in"] == "query"
        ],
        "body": _fields(document, content),
        "example": json.dumps(media["example"], indent=2) if "example" in media else "",
    }


def _fields(document: Json, content: Json) -> list[tuple[str, str, bool]]:
    """Name, type and whether it is required, of a body's fields."""
    if reference := content.get("$ref"):
        content = document["components"]["schemas"][reference.rsplit("/", 1)[-1]]
    required = content.get("required", [])
    return [(name, _kind(field), name in required) for name, field in content.get("properties", {}).items()]


def _kind(field: Any) -> str:
    if "$ref" in field:
        return str(field["$ref"].rsplit("/", 1)[-1])
    if field.get("type") == "array":
        return f"list of {_kind(field.get('items', {}))}"
    return str(field.get("type", "any"))
