"""`searcher`: which trials are made, and how long they train."""

from __future__ import annotations

import uuid
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field

from submissions.config.section import (
    OLDER,
    UNITS,
    Length,
    Name,
    NotNegative,
    Positive,
    Section,
    Whole,
    kinds_of,
    refuse,
    whole,
)

#: searchers that Determined ended, and what to use instead
ENDED = {
    "sync_halving": "sync_halving was removed; use async_halving",
    "adaptive": "adaptive was removed; use adaptive_asha",
    "adaptive_simple": "adaptive_simple was removed; use adaptive_asha",
    "pbt": "pbt was removed; use adaptive_asha",
}


def _length(value: Any) -> Any:
    if isinstance(value, bool) or (isinstance(value, (int, float)) and value < 1):
        raise refuse("1 or more, or one of {batches: N}, {records: N}, {epochs: N}")
    counts = [value.get(unit) for unit in UNITS] if isinstance(value, dict) else []
    if any(isinstance(count, (int, float)) and count < 1 for count in counts):
        raise refuse("a length of 1 or more")
    if not isinstance(value, (int, float, dict, Length)):
        raise refuse("a whole number, or one of {batches: N}, {records: N}, {epochs: N}")
    return whole(value)


_OneUnit = Annotated[
    dict[Literal["batches", "records", "epochs"], Positive], Field(min_length=1, max_length=1)
]
MaxLength = Annotated[
    int | Length, BeforeValidator(_length, json_schema_input_type=Annotated[int, Field(ge=1)] | _OneUnit)
]


_UUID = r"^(urn:uuid:)?\{?([0-9a-fA-F]-?){32}\}?$"


def _uuid(value: Any) -> Any:
    try:
        return str(uuid.UUID(value))
    except (ValueError, AttributeError, TypeError):
        raise refuse("the UUID of a checkpoint") from None


class _Search(Section):
    metric: Name
    """Name of the validation metric that trials are compared by."""
    smaller_is_better: bool = True
    """False if a larger value of the metric is better."""
    max_length: MaxLength | None = None
    """How long a trial trains: a plain number, or {batches | records | epochs: N}."""
    max_steps: Positive | None = Field(default=None, exclude=True, json_schema_extra=OLDER)
    """The older form of max_length, in steps of batches_per_step batches."""
    source_trial_id: Whole | None = None
    """Trials start from the latest checkpoint of this trial."""
    source_checkpoint_uuid: (
        Annotated[str, BeforeValidator(_uuid, json_schema_input_type=Annotated[str, Field(pattern=_UUID)])]
        | None
    ) = None
    """Trials start from this checkpoint."""


class Single(_Search):
    """One trial; hyperparameters with a range are sampled once."""

    name: Literal["single"]


class Random(_Search):
    """Trials with randomly sampled hyperparameters, all trained to the end."""

    name: Literal["random"]
    max_trials: Positive
    """The number of trials."""
    max_concurrent_trials: NotNegative = 16
    """The largest number of trials at once; 0 is all of them."""


class Grid(_Search):
    """Every combination of the hyperparameters' values; count sets the number of values of a range."""

    name: Literal["grid"]
    max_concurrent_trials: NotNegative = 16
    """The largest number of trials at once; 0 is all of them."""


class Custom(_Search):
    """Your own program controls the trials over the API (docs/search.md)."""

    name: Literal["custom"]
    unit: Literal["batches", "records", "epochs"] | None = None
    """The unit of the program's lengths."""


class _Halving(_Search):
    max_trials: Positive
    """The largest number of trials."""
    divisor: Annotated[float, Field(gt=1)] = 4
    """Halving factor: one in N trials is promoted, and each rung is N times longer."""
    max_concurrent_trials: NotNegative = 16
    """The largest number of trials at once; 0 lets the search choose."""
    time_metric: Name | None = None
    """A reported metric that measures training length, instead of max_length; requires max_time."""
    max_time: Positive | None = None
    """The value of time_metric at the end of a trial."""
    stop_once: bool | None = None
    """True stops a trial that is not among the best of its rung; false parks it until it is.
    null: as with true where max_time is given, as with false where max_length is."""


class AdaptiveAsha(_Halving):
    """Several halving searches that start to stop trials at different rungs."""

    name: Literal["adaptive_asha"]
    mode: Literal["standard", "aggressive", "conservative"] = "standard"
    """How early trials are stopped: conservative has the most of the late rungs, aggressive only the earliest."""
    max_rungs: Positive = 5
    """The number of rungs of the deepest bracket."""
    bracket_rungs: list[Positive] = []
    """The number of rungs of each bracket, instead of mode and max_rungs."""


class AsyncHalving(_Halving):
    """Trials are compared at rungs of increasing length, and the worse ones are stopped there."""

    name: Literal["async_halving"]
    num_rungs: Positive
    """The number of rungs."""


Searcher = Annotated[
    Single | Random | Grid | Custom | AdaptiveAsha | AsyncHalving, Field(discriminator="name")
]
SEARCHERS = kinds_of(Searcher, "name")
