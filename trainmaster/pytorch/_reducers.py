"""How metrics of many batches and ranks become one."""

from __future__ import annotations

import abc
import enum
from typing import Any, Callable, Dict, Iterable, List, NamedTuple, Optional, Sequence, Union


class Reducer(enum.Enum):
    """What becomes of a metric that `evaluate_batch` gave for each batch; AVG gives every batch the same weight."""

    AVG = 1
    SUM = 2
    MAX = 3
    MIN = 4

    def of(self, values: Sequence[float]) -> float:
        """One number of at least one."""
        if self is Reducer.SUM:
            return sum(values)
        if self is Reducer.MAX:
            return max(values)
        if self is Reducer.MIN:
            return min(values)
        return sum(values) / len(values)


class MetricReducer(abc.ABC):
    """A metric that is computed from all batches of all ranks, for `context.wrap_reducer`.

    It is reset before each validation, or after each report of training metrics; `train_batch` or
    `evaluate_batch` feed it by whatever method it has.
    """

    @abc.abstractmethod
    def reset(self) -> None:
        """Forget all batches."""

    @abc.abstractmethod
    def per_slot_reduce(self) -> Any:
        """What this rank knows, picklable; called on every rank."""

    @abc.abstractmethod
    def cross_slot_reduce(self, per_slot_metrics: List[Any]) -> Any:
        """The metric, or a dict of metrics, from what all ranks know, in rank order."""


class SimpleMetricReducer(MetricReducer):
    """What `wrap_reducer(function)` gives: `function` of the list of all values that were handed to `update`."""

    def __init__(self, function: Callable[[List[Any]], Any]) -> None:
        self._function = function
        self._values: List[Any] = []

    def update(self, value: Any) -> None:
        """Keep one value, usually of one batch."""
        self._values.append(value)

    def reset(self) -> None:
        self._values = []

    def per_slot_reduce(self) -> Any:
        return self._values

    def cross_slot_reduce(self, per_slot_metrics: List[Any]) -> Any:
        return self._function([value for values in per_slot_metrics for value in values])


class Wrapped(NamedTuple):
    """A reducer and what it is for."""

    reducer: MetricReducer
    name: Optional[str]
    for_training: bool
    for_validation: bool

    def is_for(self, training: bool) -> bool:
        return self.for_training if training else self.for_validation

    def named(self, value: Any) -> Dict[str, Any]:
        """Its metrics by name. TypeError for a reducer without a name that gives no dict."""
        if self.name is not None:
            return {self.name: value}
        if not isinstance(value, dict):
            raise TypeError(
                f"{type(self.reducer).__name__} was wrapped without a name, so cross_slot_reduce() must return "
                f"a dict of metrics; it returned {type(value).__name__}."
            )
        return value


def wrapped(
    reducer: Union[MetricReducer, Callable[[List[Any]], Any]],
    name: Optional[str],
    training: bool,
    validation: bool,
) -> Wrapped:
    """TypeError for what is neither a MetricReducer nor a function."""
    if not isinstance(reducer, MetricReducer):
        if not callable(reducer):
            raise TypeError(
                f"wrap_reducer() takes a MetricReducer or a function, not {type(reducer).__name__}."
            )
        reducer = SimpleMetricReducer(reducer)
    return Wrapped(reducer, name, training, validation)


class BatchMetrics:
    """One metric on one rank: the batches' numbers, folded to what ranks exchange."""

    def __init__(self, reducer: Reducer) -> None:
        self.reducer = reducer
        self.values: List[float] = []

    def partial(self) -> List[float]:
        """[number, count]: enough for `combined`, however many batches there were."""
        reducer = Reducer.SUM if self.reducer is Reducer.AVG else self.reducer
        return [reducer.of(self.values), float(len(self.values))]


def combined(reducer: Reducer, partials: Iterable[Sequence[float]]) -> float:
    """One metric of all ranks from their `partial`s, of which there is at least one."""
    parts = list(partials)
    numbers = [number for number, _ in parts]
    if reducer is Reducer.AVG:
        return sum(numbers) / sum(count for _, count in parts)
    return reducer.of(numbers)


def reducer_of(choice: Union[Reducer, Dict[str, Reducer]], metric: str) -> Reducer:
    """The reducer of this metric, as `evaluation_reducer()` chose; ValueError when its dict lacks the metric."""
    if isinstance(choice, Reducer):
        return choice
    if metric not in choice:
        raise ValueError(
            f"evaluation_reducer() names no reducer for the metric {metric!r}; it has {sorted(choice)}."
        )
    return choice[metric]
