"""The models that views answer with: they write the JSON, describe it in OpenAPI, and check it in tests.

A view declares a subclass of `Answer` or any other type that pydantic knows; `JsonLines` and `Media` stand for bodies
that are not a single JSON value. `CHECK_ANSWERS` validates every body that is sent against its declaration.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import aclosing
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache
from types import NoneType
from typing import Annotated, Any, Self, TypeVar, cast, get_args, get_type_hints

from django.http import HttpResponse, HttpResponseBase, StreamingHttpResponse
from django.template.response import SimpleTemplateResponse
from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    GetCoreSchemaHandler,
    PlainSerializer,
    TypeAdapter,
    ValidationError,
    create_model,
)
from pydantic.alias_generators import to_camel
from pydantic.json_schema import GenerateJsonSchema, JsonSchemaMode, models_json_schema
from pydantic_core import CoreSchema, core_schema, to_json
from rest_framework.renderers import BaseRenderer

Json = dict[str, Any]
T = TypeVar("T")


def time_text(value: datetime) -> str:
    """Return a time as every answer has it: `2026-01-31T12:00:00.123456Z`."""
    if value.tzinfo is not UTC:
        value = value.astimezone(UTC)
    return value.isoformat(timespec="microseconds").removesuffix("+00:00") + "Z"


def one_of(*words: str) -> Any:
    """Describe a field that has one of these words: `Annotated[str, one_of("a", "b")]`."""
    return Field(json_schema_extra={"enum": list(words)})


class _NullMeansAbsent:
    """Accept None in Python, but not in JSON, where the field is absent instead."""

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        nullable = cast(core_schema.NullableSchema, handler(source))
        return core_schema.json_or_python_schema(nullable["schema"], nullable)


class _AsStored:
    """Take a value as it is, without validation or conversion; its JSON is described and checked as the type."""

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        described = handler.generate_schema(get_args(source)[0])
        unchanged = core_schema.simple_ser_schema("any")
        return core_schema.json_or_python_schema(described, core_schema.any_schema(), serialization=unchanged)


#: a field that is absent where it has no value: `name: Maybe[str] = None`
Maybe = Annotated[T | None, _NullMeansAbsent(), Field(exclude_if=lambda value: value is None)]
#: JSON that was stored or encoded before
Stored = Annotated[T | Any, _AsStored()]
Time = Annotated[
    datetime, PlainSerializer(time_text, return_type=str), Field(json_schema_extra={"format": "date-time"})
]
Number64 = Annotated[str, Field(description="a 64-bit integer, as text", pattern=r"^-?\d+$")]


class _Object(BaseModel):
    """What bodies and answers have in common: fields in snake_case here, in camelCase on the wire."""

    model_config = ConfigDict(alias_generator=to_camel, validate_by_name=True, serialize_by_alias=True)


class Body(_Object):
    """A JSON object that a view reads by hand, described for OpenAPI."""


class Answer(_Object):
    """A JSON object that views answer, or a part of one."""

    model_config = ConfigDict(json_schema_serialization_defaults_required=True)

    @classmethod
    def of(cls, row: Any, **given: Any) -> Self:
        """Take each field that is not given from the row's attribute of the same name, if the row has it."""
        for name in cls.__pydantic_fields__:
            if name not in given and hasattr(row, name):
                given[name] = getattr(row, name)
        return cls.model_validate(given)


_REFERENCE = "#/components/schemas/{model}"
_MOST_FAULTS = 5


class Nothing(Answer):
    """An empty object: the request succeeded."""


class Pagination(Answer):
    """Which rows the page has."""

    offset: int
    limit: int
    start_index: int
    end_index: Annotated[int, Field(description="one past the last")]
    total: int


class Renderer(BaseRenderer):
    """Write models, and whatever else JSON has, as JSON."""

    media_type = "application/json"
    format = "json"
    charset = None

    def render(
        self, data: Any, accepted_media_type: str | None = None, renderer_context: Any = None
    ) -> bytes:
        return b"" if data is None else to_json(data, inf_nan_mode="null")


def json_answer(answer: Answer) -> HttpResponse:
    """Answer outside of REST framework, as async views do."""
    return HttpResponse(Renderer().render(answer), content_type=Renderer.media_type)


@dataclass(frozen=True)
class JsonLines:
    """A stream of records of this type, each in a line `{"result": record}`; what fails later ends it with an error."""

    record: Any


class Media:
    """What is no JSON: a file, a text."""

    def __init__(self, *types: str) -> None:
        self.types = types


class WrongAnswer(Exception):
    """A view answered otherwise than it declares."""


def declared_by(handler: Callable[..., Any]) -> Any:
    """The type that a view's method or function is annotated to return; None stands for an empty object."""
    kind = get_type_hints(handler, include_extras=True)["return"]
    return Nothing if kind is NoneType else kind


def content(answer: Any) -> dict[str, Json]:
    """Media type -> JSON Schema, which refers to `definitions`."""
    if isinstance(answer, Media):
        return {each: {"type": "string", "format": "binary"} for each in answer.types}
    if isinstance(answer, JsonLines):
        line = {
            "type": "object",
            "description": "One line of the stream. A line with `error` is the last one.",
            "properties": {"result": _schema(answer.record)},
        }
        return {"application/json": line}
    return {"application/json": _schema(answer)}


class _Plain(GenerateJsonSchema):
    """Leave out what readers of an answer do not need: titles of fields, and their defaults."""

    def field_title_should_be_set(self, schema: Any) -> bool:
        return False

    def default_schema(self, schema: core_schema.WithDefaultSchema) -> Json:
        return self.generate_inner(schema["schema"])


@cache
def _schema(kind: Any) -> Json:
    """Cached: the document asks four times for each operation, and several answer with the same."""
    schemas, _ = TypeAdapter.json_schemas(
        [("answer", "serialization", _adapter(kind))], ref_template=_REFERENCE, schema_generator=_Plain
    )
    return schemas["answer", "serialization"]


def definitions() -> Json:
    """Return the schema of each model by its name, for the components of OpenAPI."""
    models: list[tuple[type[BaseModel], JsonSchemaMode]] = [
        (model, "serialization") for model in (*_below(Answer), *_below(Body))
    ]
    _, shared = models_json_schema(models, ref_template=_REFERENCE, schema_generator=_Plain)
    return dict(shared["$defs"])


def _below(base: type[BaseModel]) -> list[type[BaseModel]]:
    return [model for each in base.__subclasses__() for model in (each, *_below(each))]


@cache
def _adapter(kind: Any) -> TypeAdapter[Any]:
    return TypeAdapter(kind)


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
        response.add_post_render_callback(lambda rendered: _validate(_adapter(kind), whose, rendered.content))
    else:
        _validate(_adapter(kind), whose, response.content)


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
    return create_model("Line", result=record)


def _validate(adapter: TypeAdapter[Any], whose: str, value: bytes) -> None:
    try:
        adapter.validate_json(value, strict=True, extra="forbid", by_alias=True, by_name=False)
    except ValidationError as error:
        faults = error.errors(include_url=False, include_input=False)
        said = "; ".join(
            f"{'.'.join(map(str, fault['loc'])) or 'all of it'}: {fault['msg']}"
            for fault in faults[:_MOST_FAULTS]
        )
        more = f"; and {len(faults) - _MOST_FAULTS} more" if len(faults) > _MOST_FAULTS else ""
        raise WrongAnswer(f"{whose}: {said}{more}.") from None
