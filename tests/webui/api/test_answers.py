"""What views declare to answer: in OpenAPI, and held against what they answer."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import pytest
from django.test import RequestFactory
from rest_framework.request import Request
from rest_framework.response import Response

from accounts.rights import Right
from webui.api import answers, async_routes, urls
from webui.api.answers import Answer, JsonLines, Maybe, Media, Nothing, Stored, Time, WrongAnswer
from webui.api.async_views import ndjson, record
from webui.api.docs import schema
from webui.api.views import ApiView


class Part(Answer):
    size: int
    name: Maybe[str] = None


class Whole(Answer):
    parts: list[Part]


def _answered(data: Any, status: int = 200) -> Any:
    class Wholes(ApiView):
        rights = {"GET": Right.OPEN}
        answers = {"GET": Whole}

        def get(self, request: Request) -> Response:
            return Response(data, status)

    return Wholes.as_view()(RequestFactory().get("/wholes")).render()


@pytest.mark.parametrize(
    ("data", "fault"),
    [
        ({"parts": [{"size": 1, "colour": "red"}]}, "parts.0.colour: Extra inputs are not permitted"),
        ({"parts": [{"name": "a"}]}, "parts.0.size: Field required"),
        ({"parts": [{"size": "1"}]}, "parts.0.size: Input should be a valid integer"),
        ({"parts": [{"size": 1, "name": None}]}, "parts.0.name: Input should be a valid string"),
        ({}, "parts: Field required"),
    ],
)
def test_an_answer_that_is_not_as_declared_fails_with_what_differs(data: Any, fault: str) -> None:
    with pytest.raises(WrongAnswer) as raised:
        _answered(data)
    assert str(raised.value) == f"Wholes answers GET /wholes otherwise than it declares: {fault}."


def test_what_is_as_declared_passes_and_so_does_every_error() -> None:
    assert json.loads(_answered({"parts": [{"size": 1, "name": "a"}, {"size": 2}]}).content)
    assert _answered({"message": "no"}, 404).status_code == 404


@dataclass
class Row:
    size_bytes: int = 3
    host_name: str | None = None
    seen_at: datetime = datetime(2026, 1, 31, 12, tzinfo=UTC)


class Shown(Answer):
    size_bytes: int
    host_name: Maybe[str] = None
    seen_at: Time | None
    parts: Stored[list[Part]]
    kind: str = "file"


def test_a_model_takes_fields_from_a_row_and_writes_them_in_camel_case() -> None:
    shown = Shown.of(Row(), parts=[{"size": 1}])
    assert json.loads(answers.json_answer(shown).content) == {
        "sizeBytes": 3, "seenAt": "2026-01-31T12:00:00.000000Z", "parts": [{"size": 1}], "kind": "file",
    }  # fmt: skip
    unseen = Shown.of(Row(host_name="gpu1"), seen_at=None, parts=[])
    found = json.loads(answers.json_answer(unseen).content)
    assert found["hostName"] == "gpu1" and found["seenAt"] is None
    described = answers.definitions()["Shown"]
    assert described["required"] == ["sizeBytes", "seenAt", "parts", "kind"]
    assert described["properties"]["parts"]["items"] == {"$ref": "#/components/schemas/Part"}
    assert described["properties"]["hostName"] == {"type": "string"}


async def test_each_line_of_a_stream_is_held_against_its_type() -> None:
    async def lines() -> AsyncIterator[bytes]:
        yield record({"size": 1}) + b'{"error": {"code": 500}}\n'
        yield record({"size": None})

    response: Any = ndjson(lines())
    answers.check({"GET": JsonLines(Part)}, "GET", "/parts", "parts", response)
    parts = aiter(response)
    assert (await anext(parts)).count(b"\n") == 2
    with pytest.raises(WrongAnswer, match=r"result\.size: Input should be a valid integer"):
        await anext(parts)


def test_types_of_media_are_described_and_checked() -> None:
    assert answers.content(Media("text/csv")) == {"text/csv": {"type": "string", "format": "binary"}}
    with pytest.raises(WrongAnswer, match=r"it is application/json; declared: text/csv\."):
        answers.check({"GET": Media("text/csv")}, "GET", "/x", "x", ndjson(_no_lines()))


async def _no_lines() -> AsyncIterator[bytes]:
    for line in ():
        yield line


def test_the_document_has_each_type_once_and_leads_to_it() -> None:
    document = schema()
    known = document["components"]["schemas"]
    text = json.dumps(document)
    assert "$defs" not in text and known["Nothing"]["description"] == Nothing.__doc__
    missing = {part.split('"')[0] for part in text.split("#/components/schemas/")[1:]} - known.keys()
    assert not missing
    rows = known["TemplatesAnswer"]["properties"]["templates"]["items"]
    assert rows == {"$ref": "#/components/schemas/TemplateRecord"}


def test_every_view_declares_what_each_of_its_methods_answers() -> None:
    for pattern in urls.urlpatterns:
        view: Any = getattr(pattern.callback, "cls", None)
        if view is not None:
            methods = {name.upper() for name in view.http_method_names if hasattr(view, name)} - {"OPTIONS"}
            assert methods <= set(view.answered()), f"{view.__module__}.{view.__name__} lacks an answer"
    for route, handler in async_routes._ROUTES:
        assert handler.answers, f"{route}: {handler.__name__} lacks an answer"
