"""The API's own description: OpenAPI for programs, one page for people."""

from __future__ import annotations

import json
from functools import cache
from typing import Any

from django.contrib.auth.decorators import login_required
from django.http import Http404, HttpRequest, HttpResponse
from drf_spectacular.generators import SchemaGenerator
from rest_framework.request import Request

from accounts.rights import Right, declares
from shown import rest_bodies
from webui.api import answers
from webui.api.async_routes import described
from webui.api.views import ApiView, Json
from webui.pages.frame import show

#: a type in words: pieces of text, each with the name of the type that it is, if it is one of this page's
Kind = list[tuple[str, str]]
#: name, type, whether it is always there, and meaning
Field = tuple[str, Kind, bool, str]

#: requests that one page of a search shows
_FOUND_MAX = 60
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
    rest_bodies.add(document)
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
    """The nouns; then the requests of one, or those that a search finds, with all that they take and answer."""
    document, nouns = schema(), _nouns()
    noun, search = request.GET.get("of", ""), request.GET.get("q", "").strip()
    words = search.lower().split()
    if words:
        found = {
            name: [row for row in rows if all(word in row["sought"] for word in words)]
            for name, rows in nouns.items()
        }
    elif noun in nouns:
        found = {noun: nouns[noun]}
    elif noun:
        raise Http404(f"REST has no noun {noun}; it has {', '.join(nouns)}.")
    else:
        found = {}
    total = sum(len(rows) for rows in found.values())
    if total > _FOUND_MAX:
        found = {}
    context = {
        "nouns": nouns,
        "noun": noun if not words else "",
        "search": search,
        "total": total,
        "most": _FOUND_MAX,
        "found": {name: rows for name, rows in found.items() if rows},
        "types": _types(document, [row for rows in found.values() for row in rows]),
    }
    return show(request, "api_docs", context, room="REST API")


@cache
def _nouns() -> dict[str, list[Json]]:
    """The requests by what their path begins with: `experiments`, where one is of `experiment`, too."""
    document, nouns = schema(), dict[str, list[Json]]()
    names = {path: path.removeprefix("/api/v1/").strip("/").split("/")[0] for path in document["paths"]}
    for path, operations in sorted(document["paths"].items()):
        name = names[path].removesuffix("-v2")
        name = f"{name}s" if f"{name}s" in names.values() else name
        rows = [_row(document, path, each, operations[each]) for each in _METHODS if each in operations]
        nouns.setdefault(name, []).extend(rows)
    return dict(sorted(nouns.items()))


def _types(document: Json, rows: list[Json]) -> list[tuple[str, str, list[Field], Kind]]:
    """The types that these requests refer to, and those that these refer to."""
    known: Json = document["components"]["schemas"]
    found: dict[str, tuple[str, str, list[Field], Kind]] = {}
    left = [name for row in rows for kind in _kinds(row["body"], row["answer"]) for _, name in kind]
    while left:
        name = left.pop()
        if name in found or name not in known:
            continue
        kind = known[name]
        fields, words = _fields(document, kind), [] if "properties" in kind else _kind(kind)
        found[name] = (name, kind.get("description", ""), fields, words)
        left += [name for each in _kinds(fields, words) for _, name in each]
    return sorted(found.values())


def _kinds(fields: list[Field], kind: Kind) -> list[Kind]:
    return [*(each for _, each, _, _ in fields), kind]


def _row(document: Json, path: str, method: str, operation: Json) -> Json:
    words = (method, path, operation.get("description", ""), json.dumps(operation.get("parameters", [])))
    body = operation.get("requestBody", {}).get("content", {})
    media: Json = next(iter(body.values()), Json())
    content: Json = media.get("schema", {})
    fields = _fields(document, content)
    return {
        "sought": " ".join((*words, *(name for name, *_ in fields))).lower(),
        "method": method.upper(),
        "path": path.split("/")[1:],  # a narrow column breaks it before a slash
        "text": operation.get("description", ""),
        "query": [
            parameter["name"] for parameter in operation.get("parameters", []) if parameter["in"] == "query"
        ],
        "body": fields,
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


def _fields(document: Json, content: Json) -> list[Field]:
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
