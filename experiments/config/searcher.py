"""`searcher`: which trials are made, and how long they train."""

from __future__ import annotations

import uuid
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field

from submissions.config.section import UNITS, Length, Name, NotNegative, Positive, Section, Whole, refuse

#: searchers that Determined ended, and what to use instead
ENDED = {
    "custom": "custom searchers have ended",
    "sync_halving": "sync_halving has ended, use async_halving",
    "adaptive": "adaptive has ended, use adaptive_asha",
    "adaptive_simple": "adaptive_simple has ended, use adaptive_asha",
    "pbt": "pbt has ended, use adaptive_asha",
}


def _length(value: Any) -> Any:
    if isinstance(value, bool) or (isinstance(value, (int, float)) and value < 1):
        raise refuse("1 or more, or one of {batches: N}, {records: N}, {epochs: N}")
    counts = [value.get(unit) for unit in UNITS] if isinstance(value, dict) else []
    if any(isinstance(count, (int, float)) and count < 1 for count in counts):
        raise refuse("a length of 1 or more")
    if not isinstance(value, (int, float, dict, Length)):
        raise refuse("a whole number, or one of {batches: N}, {records: N}, {epochs: N}")
    return int(value) if isinstance(value, float) and value.is_integer() else value


MaxLength = Annotated[int | Length, BeforeValidator(_length)]


def _uuid(value: Any) -> Any:
    try:
        return str(uuid.UUID(value))
    except (ValueError, AttributeError, TypeError):
        raise refuse("the UUID of a checkpoint") from None


class _Search(Section):
    metric: Name
    """Name of the validation metric that decides."""
    smaller_is_better: bool = True
    max_length: MaxLength | None = None
    """How long a trial trains: a plain number, or {batches | records | epochs: N}."""
    source_trial_id: Whole | None = None
    source_checkpoint_uuid: Annotated[str, BeforeValidator(_uuid)] | None = None


class Single(_Search):
    name: Literal["single"]


class Random(_Search):
    name: Literal["random"]
    max_trials: Positive
    max_concurrent_trials: NotNegative = 16


class Grid(_Search):
    name: Literal["grid"]
    max_concurrent_trials: NotNegative = 16


class _Halving(_Search):
    max_trials: Positive
    divisor: Annotated[float, Field(gt=1)] = 4
    max_concurrent_trials: NotNegative = 16
    time_metric: Name | None = None
    max_time: Positive | None = None
    stop_once: bool = False


class AdaptiveAsha(_Halving):
    name: Literal["adaptive_asha"]
    mode: Literal["standard", "aggressive", "conservative"] = "standard"
    max_rungs: Positive = 5
    bracket_rungs: list[Positive] = []


class AsyncHalving(_Halving):
    name: Literal["async_halving"]
    num_rungs: Positive


Searcher = Annotated[Single | Random | Grid | AdaptiveAsha | AsyncHalving, Field(discriminator="name")]
SEARCHERS: dict[str, type[Section]] = {
    "single": Single,
    "random": Random,
    "grid": Grid,
    "adaptive_asha": AdaptiveAsha,
    "async_halving": AsyncHalving,
}
