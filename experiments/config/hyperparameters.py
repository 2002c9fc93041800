"""`hyperparameters`: constants, ranges, and maps of both to any depth."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Discriminator, Field, Tag, model_validator
from typing_extensions import TypeAliasType

from searching.hyperparameters import TYPES, is_typed
from submissions.config.section import Positive, Section, Whole


class Const(Section):
    """One value; the same as the bare value."""

    type: Literal["const"]
    val: Any
    """The value: anything, including null."""

    @model_validator(mode="before")
    @classmethod
    def _null_is_absent(cls, data: Any) -> Any:
        return data  # null is a value here


class Int(Section):
    """A whole number from minval to maxval, inclusive."""

    type: Literal["int"]
    minval: Whole
    """The smallest value; less than maxval."""
    maxval: Whole
    """The largest value."""
    count: Positive | None = None
    """How many values a grid search uses; required for grid search."""


class Double(Section):
    """A number from minval to maxval."""

    type: Literal["double"]
    minval: float
    """The smallest value; less than maxval."""
    maxval: float
    """The largest value."""
    count: Positive | None = None
    """How many evenly spaced values a grid search uses; required for grid search."""


class Log(Section):
    """A number from base^minval to base^maxval, uniform in the exponent."""

    type: Literal["log"]
    base: Annotated[float, Field(gt=0)]
    """The base of the power, such as 10."""
    minval: float
    """Exponent of the smallest value; less than maxval."""
    maxval: float
    """Exponent of the largest value."""
    count: Positive | None = None
    """How many values a grid search uses, evenly spaced in the exponent; required for grid search."""


class Categorical(Section):
    """One of the listed values."""

    type: Literal["categorical"]
    vals: Annotated[list[Any], Field(min_length=1)]
    """The values, of any type."""


def _constant(value: Any) -> Any:
    return value if isinstance(value, (dict, Section)) else {"type": "const", "val": value}


def _kind(value: Any) -> str | None:
    if isinstance(value, Section):
        return str(getattr(value, "type", None))
    if is_typed(value):
        return value["type"] if value["type"] in TYPES else None
    return "map" if isinstance(value, dict) else "const"


Hyperparameter = TypeAliasType(
    "Hyperparameter",
    Annotated[
        Annotated[
            Annotated[Const, Tag("const")]
            | Annotated[Int, Tag("int")]
            | Annotated[Double, Tag("double")]
            | Annotated[Log, Tag("log")]
            | Annotated[Categorical, Tag("categorical")]
            | Annotated["dict[str, Hyperparameter]", Tag("map")],
            Discriminator(_kind, "unknown_type", f"a type of {', '.join(TYPES)}"),
        ],
        BeforeValidator(_constant),
    ],
)
