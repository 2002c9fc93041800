"""What views answer: the types that they declare as `answers`, as schemas of OpenAPI and as a check of each answer.

A type is a TypedDict beside the encoder that builds it, a list of one, or anything else that pydantic knows;
`JsonLines` and `Media` stand for what is no single JSON value. The check is for tests (`CHECK_ANSWERS`).
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import aclosing
from dataclasses import dataclass
from functools import cache
from typing import Annotated, Any, cast

from django.http import HttpResponseBase, StreamingHttpResponse
from django.template.response import SimpleTemplateResponse
from pydantic import Field, TypeAdapter, ValidationError
from pydantic.json_schema import GenerateJsonSchema
from typing_extensions import TypedDict

Json = dict[str, Any]

#: fields of answers
Time = Annotated[str, Field(json_schema_extra={"format": "date-time"})]
Number64 = Annotated[str, Field(description="a whole number of 64 bits, as text", pattern=r"^-?\d+$")]


def one_of(*words: str) -> Any:
    """Of a field that has one of these words: `Annotated[str, one_of("a", "b")]`."""
    return Field(json_schema_extra={"enum": list(words)})


_REFERENCE = "#/components/schemas/{model}"
_MOST_FAULTS = 5


class Nothing(TypedDict):
    """An object without fields: it was done."""


class Pagination(TypedDict):
    """Which rows of all a page has."""

    offset: int
    limit: int
    startIndex: int
    endIndex: Annotated[int, Field(description="one past the last")]
    total: int


@dataclass(frozen=True)
class JsonLines:
    """A stream of records of this type, each in a line `{"result": record}`; what fails later ends it with an error."""

    record: Any


@dataclass(frozen=True)
class Media:
    """What is no JSON: a file, a text."""

    types: tuple[str, ...]

    def __init__(self, *types: str) -> None:
        object.__setattr__(self, "types", types)


class WrongAnswer(Exception):
    """A view answered otherwise than it declares."""


def content(answer: Any) -> dict[str, Json]:
    """Media type -> JSON Schema; the schemas that it refers to are in its `$defs`, until `hoist`."""
    if isinstance(answer, Media):
        return {each: {"type": "string", "format": "binary"} for each in answer.types}
    if isinstance(answer, JsonLines):
        record = _schema(answer.record)
        line = {
            "type": "object",
            "description": "One line of the stream. A line with `error` instead is the last.",
            "properties": {"result": {name: value for name, value in record.items() if name != "$defs"}},
        }
        return {"application/json": line | {"$defs": record.get("$defs", {})}}
    return {"application/json": _schema(answer)}


class _WithoutTitles(GenerateJsonSchema):
    """Without each field's name once more in capitals."""

    def field_title_should_be_set(self, schema: Any) -> bool:
        return False


def _schema(kind: Any) -> Json:
    schemas, shared = TypeAdapter.json_schemas(
        [("answer", "serialization", _adapter(kind))],
        ref_template=_REFERENCE,
        schema_generator=_WithoutTitles,
    )
    (schema,) = schemas.values()
    return {**schema, **shared}


@cache
def _adapter(kind: Any) -> TypeAdapter[Any]:
    return TypeAdapter(kind)


def hoist(document: Json) -> None:
    """Put the types that answers and bodies refer to among the document's components, each once by its name.

    Raises TypeError where two are called the same.
    """
    components = document["components"]["schemas"]
    for operations in document["paths"].values():
        for operation in operations.values():
            for part in [*operation["responses"].values(), operation.get("requestBody", {})]:
                for media in part.get("content", {}).values():
                    for name, schema in media["schema"].pop("$defs", {}).items():
                        if components.setdefault(name, schema) != schema:
                            raise TypeError(f"Two types of answers or bodies are called {name}; rename one.")


def check(answers: Mapping[str, Any], method: str, path: str, view: str, response: Any) -> None:
    """Make the response fail with WrongAnswer where it is a success that is not as declared, once it is sent."""
    if method not in answers or not 200 <= response.status_code < 300:
        return
    kind, whose = answers[method], f"{view} answers {method} {path} otherwise than it declares"
    if isinstance(kind, Media):
        _check_media(kind, whose, response)
    elif isinstance(kind, JsonLines):
        _check_lines(kind, whose, response)
    elif isinstance(response, SimpleTemplateResponse) and not response.is_rendered:
        response.add_post_render_callback(lambda rendered: _check_value(kind, whose, rendered.content))
    else:
        _check_value(kind, whose, response.content)


def _check_media(kind: Media, whose: str, response: HttpResponseBase) -> None:
    found = response["Content-Type"].split(";")[0]
    if found not in kind.types:
        raise WrongAnswer(f"{whose}: it is {found}; declared: {', '.join(kind.types)}.")


def _check_lines(kind: JsonLines, whose: str, response: StreamingHttpResponse) -> None:
    parts = cast(AsyncIterator[bytes], response.streaming_content)
    line_type = _adapter(_line(kind.record))

    async def checked() -> AsyncIterator[bytes]:
        async with aclosing(parts):  # type: ignore[type-var]  # Django's own generator
            async for part in parts:
                for line in part.splitlines():
                    if not line.startswith(b'{"error"'):
                        _validate(line_type, whose, line)
                yield part

    response.streaming_content = checked()


@cache
def _line(record: Any) -> Any:
    return TypedDict("Line", {"result": record})  # type: ignore[operator]


def _check_value(kind: Any, whose: str, value: bytes) -> None:
    _validate(_adapter(kind), whose, value)


def _validate(adapter: TypeAdapter[Any], whose: str, value: bytes) -> None:
    try:
        adapter.validate_json(value, strict=True, extra="forbid")
    except ValidationError as error:
        faults = error.errors(include_url=False, include_input=False)
        said = "; ".join(
            f"{'.'.join(map(str, fault['loc'])) or 'all of it'}: {fault['msg']}"
            for fault in faults[:_MOST_FAULTS]
        )
        more = f"; and {len(faults) - _MOST_FAULTS} more" if len(faults) > _MOST_FAULTS else ""
        raise WrongAnswer(f"{whose}: {said}{more}.") from None
