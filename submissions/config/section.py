"""The base of all parts of a config, and the scalar types that they share."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Annotated, Any, Literal, get_args

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, JsonValue, model_validator
from pydantic_core import PydanticCustomError


def refuse(allowed: str) -> PydanticCustomError:
    """The error of a validator of ours; `allowed` completes "found …, allowed: …"."""
    return PydanticCustomError("not_allowed", "{allowed}", {"allowed": allowed})


class Section(BaseModel):
    """Unknown fields are errors, values keep their types, a null counts as absent."""

    model_config = ConfigDict(extra="forbid", strict=True, use_attribute_docstrings=True)

    @model_validator(mode="before")
    @classmethod
    def _null_is_absent(cls, data: Any) -> Any:
        if not isinstance(data, dict):
            return data
        return {key: value for key, value in data.items() if value is not None or key not in cls.model_fields}


def leading(*names: str) -> Callable[[dict[str, Any]], None]:
    """For `json_schema_extra`: these fields come before those of the base class, in schema, reference and display."""

    def reorder(schema: dict[str, Any]) -> None:
        fields = schema["properties"]
        schema["properties"] = {**{name: fields[name] for name in names}, **fields}

    return reorder


def kinds_of(union: Any, tag: str) -> dict[str, type[Section]]:
    """The members of a tagged union by the name that tells each from the others."""
    members = get_args(get_args(union)[0])
    return {get_args(each.model_fields[tag].annotation)[0]: each for each in members}


def whole(value: Any) -> Any:
    return int(value) if isinstance(value, float) and value.is_integer() else value  # 1e3 is a whole number


Whole = Annotated[int, BeforeValidator(whole)]
#: the largest value of an integer column of the database
LARGEST = 2**31 - 1
NotNegative = Annotated[int, Field(ge=0, le=LARGEST), BeforeValidator(whole)]
Positive = Annotated[int, Field(ge=1, le=LARGEST), BeforeValidator(whole)]
Name = Annotated[str, Field(min_length=1)]


def _absolute(value: Any) -> Any:
    if isinstance(value, str) and not value.startswith("/"):
        raise refuse("an absolute path, such as /data")
    return value


AbsolutePath = Annotated[
    str, BeforeValidator(_absolute, json_schema_input_type=Annotated[str, Field(pattern="^/")])
]

_JOB = r"^([0-9]{1,18}|[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12})(:(success|end|failure|each))?$"


def _jobs(value: Any) -> Any:
    entries = [str(each) for each in value if not isinstance(each, bool)] if isinstance(value, list) else []
    if (
        not isinstance(value, list)
        or len(entries) < len(value)
        or not all(re.fullmatch(_JOB, each) for each in entries)
    ):
        raise refuse(
            "a list of jobs to wait for, such as [12, '13:end']: numbers of experiments or ids of jobs, "
            "each with :success (the default), :end or :failure, or an array with :each"
        )
    return list(dict.fromkeys(each if ":" in each else f"{each}:success" for each in entries))


#: jobs that must end first, each `<job>:<condition>`
DependsOn = Annotated[
    list[str],
    Field(max_length=100),
    BeforeValidator(
        _jobs, json_schema_input_type=list[Annotated[int, Field(ge=1)] | Annotated[str, Field(pattern=_JOB)]]
    ),
]

UNITS = ("batches", "records", "epochs")


class Length(Section):
    """A length of training in one unit; set exactly one field."""

    batches: NotNegative | None = None
    """Batches of the global batch size."""
    records: NotNegative | None = None
    """Records (samples of the training data)."""
    epochs: NotNegative | None = None
    """Passes over the training data."""


#: `Length` as it is written, for schemas: each of its forms by itself
OneUnit = Annotated[
    dict[Literal["batches", "records", "epochs"], NotNegative], Field(min_length=1, max_length=1)
]

_MEMORY = r"^([0-9]*[.])?[0-9]+ ?([kmgtpKMGTP]([iI]?[bB])?|[bB])?$"  # as Determined has it


def _memory(value: Any) -> Any:
    value = whole(value)
    if isinstance(value, str) and re.fullmatch(_MEMORY, value):
        return value
    if isinstance(value, int) and not isinstance(value, bool) and value >= 0:
        return value
    raise refuse("a memory size: a number of bytes, or text such as 4g or 512m")


MemorySize = Annotated[
    int | str,
    BeforeValidator(
        _memory,
        json_schema_input_type=Annotated[int, Field(ge=0)] | Annotated[str, Field(pattern=_MEMORY)],
    ),
]


def _entrypoint(value: Any) -> Any:
    words = value.strip() if isinstance(value, str) else value
    if not words or not isinstance(words, (str, list)) or not all(isinstance(part, str) for part in words):
        raise refuse("a command, or a list of its words")
    return value


_Words = Annotated[list[str], Field(min_length=1)]
Entrypoint = Annotated[
    str | list[str],
    BeforeValidator(_entrypoint, json_schema_input_type=Annotated[str, Field(pattern=r"\S")] | _Words),
]

#: json_schema_extra of an older name, which editors then show struck out
OLDER: dict[str, JsonValue] = {"deprecated": True}

#: known to Determined and without a meaning here
IGNORED = "Accepted for compatibility with Determined; has no effect here."
Ignored = Annotated[Any, Field(exclude=True, description=IGNORED)]
