"""The base of all parts of a config, and the scalar types that they share."""

from __future__ import annotations

import re
from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, model_validator
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


def _whole(value: Any) -> Any:
    return int(value) if isinstance(value, float) and value.is_integer() else value  # 1e3 is a whole number


Whole = Annotated[int, BeforeValidator(_whole)]
_MOST = 2**31 - 1  # of the database's integers
NotNegative = Annotated[int, BeforeValidator(_whole), Field(ge=0, le=_MOST)]
Positive = Annotated[int, BeforeValidator(_whole), Field(ge=1, le=_MOST)]
Name = Annotated[str, Field(min_length=1)]


def _absolute(value: Any) -> Any:
    if isinstance(value, str) and not value.startswith("/"):
        raise refuse("an absolute path, such as /data")
    return value


AbsolutePath = Annotated[str, BeforeValidator(_absolute)]

UNITS = ("batches", "records", "epochs")


class Length(Section):
    """A stretch of training in one unit; exactly one of the fields is set."""

    batches: NotNegative | None = None
    records: NotNegative | None = None
    epochs: NotNegative | None = None


_MEMORY = re.compile(r"^[0-9]+(\.[0-9]+)? ?([kmgtp]i?)?b?$", re.IGNORECASE)


def _memory(value: Any) -> Any:
    value = _whole(value)
    if isinstance(value, str) and _MEMORY.match(value):
        return value
    if isinstance(value, int) and not isinstance(value, bool) and value >= 0:
        return value
    raise refuse("a memory size: bytes as a number, or text such as 4g or 512m")


MemorySize = Annotated[int | str, BeforeValidator(_memory)]


def _entrypoint(value: Any) -> Any:
    if isinstance(value, list):
        if not value or not all(isinstance(part, str) for part in value):
            raise refuse("a command, or a list of its words")
        return value
    if not isinstance(value, str) or not value.strip():
        raise refuse("a command, or a list of its words")
    return value


Entrypoint = Annotated[str | list[str], BeforeValidator(_entrypoint)]

#: known to Determined and without a meaning here
Ignored = Annotated[Any, Field(exclude=True)]
