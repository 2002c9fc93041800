"""The API's own description: OpenAPI for programs, one page for people."""

from __future__ import annotations

import json
from functools import cache
from typing import Any

from django.contrib.auth.decorators import login_required
from django.http import HttpRequest, HttpResponse
from drf_spectacular.generators import SchemaGenerator
from rest_framework.request import Request

from accounts.rights import Right, declares
from webui.api import answers, examples
from webui.api.async_routes import described
from webui.api.views import ApiView, Json
from webui.pages.frame import show

#: a type in words: pieces of text, each with the name of the type that it is, if it is one of this page's
Kind = list[tuple[str, str]]

_METHODS = ("get", "post", "put", "patch", "delete")


@cache
def schema() -> Json:
    """The OpenAPI document; it does not change while the process runs."""
    from webui.api import urls

    generator = SchemaGenerator(patterns=urls.urlpatterns)  # type: ignore[no-untyped-call]
    document: Json = generator.get_schema(request=None, public=True)  # type: ignore[no-untyped-call]
    for path, operations in described().items():
        document["paths"].setdefault(path, {}).update(operations)
    document["components"]["schemas"] |= answers.definitions()
    examples.add(document)
    plain: Json = json.loads(json.dumps(document, default=str))
    return plain


class OpenApi(ApiView):
    """This description."""

    rights = {"GET": Right.READ}

    def get(self, request: Request) -> Json:
        return schema()


@declares({"GET": Right.READ})
@login_required
def page(request: HttpRequest) -> HttpResponse:
    """Every path with its methods, parameters, body and answer, by resource; then the types that these refer to."""
    document = schema()
    types = [
        (
            name,
            kind.get("description", ""),
            _fields(document, kind),
            [] if "properties" in kind else _kind(kind),
        )
        for name, kind in sorted(document["components"]["schemas"].items())
    ]
    return show(request, "api_docs", {"groups": _groups(document), "types": types}, room="REST API")


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
        "path": path.split("/")[1:],  # a narrow column breaks it before a slash
        "text": operation.get("description", ""),
        "query": [
            parameter["name"] for parameter in operation.get("parameters", []) if parameter["in"] == "query"
        ],
        "body": _fields(document, content),
        "answer": _answer(operation),
        "example": json.dumps(media["example"], indent=2) if "example" in media else "",
    }


def _answer(operation: Json) -> Kind:
    """What a success is, by its media types."""
    success = next(response for status, response in operation["responses"].items() if status[0] == "2")
    kinds: Kind = []
    for media, body in success.get("content", {}).items():
        content = body["schema"]
        if media != "application/json":
            kinds.append((f"{', ' if kinds else ''}{media}", ""))
        elif record := content.get("properties", {}).get("result"):
            kinds += [("lines of JSON, each {result: ", ""), *_kind(record), ("}", "")]
        else:
            kinds += _kind(content)
    return kinds


def _fields(document: Json, content: Json) -> list[tuple[str, Kind, bool, str]]:
    """Name, type, whether it is always there, and meaning of each field."""
    if reference := content.get("$ref"):
        content = document["components"]["schemas"][reference.rsplit("/", 1)[-1]]
    required = content.get("required", [])
    return [
        (name, _kind(field), name in required, field.get("description", ""))
        for name, field in content.get("properties", {}).items()
    ]


def _kind(field: Any) -> Kind:
    """A schema in words."""
    if "$ref" in field:
        return [("", field["$ref"].rsplit("/", 1)[-1])]
    if choices := next((field[union] for union in ("anyOf", "oneOf", "allOf") if union in field), None):
        return _either(choices)
    if "enum" in field:
        return [(", ".join(json.dumps(word) for word in field["enum"]), "")]
    kind = field.get("type", "any")
    if isinstance(kind, list):
        return _either([{**field, "type": each} for each in kind])
    if kind == "array":
        return [("list of ", ""), *_kind(field.get("items", {}))]
    if isinstance(inner := field.get("additionalProperties"), dict):
        return [("map to ", ""), *_kind(inner)]
    return [(f"{kind} ({field['format']})" if "format" in field and kind != "null" else str(kind), "")]


def _either(choices: list[Json]) -> Kind:
    parts: Kind = [part for choice in choices for part in [(" or ", ""), *_kind(choice)]]
    return parts[1:]
