"""How metrics of many batches and ranks become one."""

from __future__ import annotations

import abc
import enum
import itertools
from typing import Any, Callable, Dict, Iterable, List, NamedTuple, Optional, Sequence, Union

from trainmaster.core import DistributedContext

_NOTHING = object()


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
    """What `wrap_reducer(function)` gives: `function` of the list of all values that were handed to `update`.

    The ranks take turns in the list, so values of batches are in the order of the data.
    """

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
        rounds = itertools.zip_longest(*per_slot_metrics, fillvalue=_NOTHING)
        return self._function([value for each in rounds for value in each if value is not _NOTHING])


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


class ReducerContext:
    """The part of a context that keeps reducers."""

    distributed: DistributedContext

    def __init__(self) -> None:
        self._wrapped_reducers: List[Wrapped] = []

    def wrap_reducer(
        self,
        reducer: Union[MetricReducer, Callable[[List[Any]], Any]],
        name: Optional[str] = None,
        for_training: bool = True,
        for_validation: bool = True,
    ) -> MetricReducer:
        """Have a metric reduced from all batches of all ranks; returns the reducer, which the program feeds.

        A function gets the list of all that its reducer's `update` was given. With `name` the result is that metric,
        without it must be a dict of metrics. TypeError for what is neither a reducer nor a function.
        """
        if not isinstance(reducer, MetricReducer):
            if not callable(reducer):
                raise TypeError(
                    f"wrap_reducer() takes a MetricReducer or a function, not {type(reducer).__name__}."
                )
            reducer = SimpleMetricReducer(reducer)
        reducer.reset()
        self._wrapped_reducers.append(Wrapped(reducer, name, for_training, for_validation))
        return reducer

    def reset_reducers(self) -> None:
        """Reset all of them; it is done at the right times without this."""
        for kept in self._wrapped_reducers:
            kept.reducer.reset()

    def _reset_for(self, training: bool) -> None:
        """Reset those for training, or for validation."""
        for kept in self._wrapped_reducers:
            if kept.is_for(training):
                kept.reducer.reset()

    def reduce_metrics(self, for_training: bool) -> Dict[str, Any]:
        """The metrics of those for training, or for validation; all ranks must call, and all get them.

        ValueError when two reducers give a metric of one name.
        """
        chosen = [kept for kept in self._wrapped_reducers if kept.is_for(for_training)]
        if not chosen:
            return {}
        parts = self.distributed.allgather([kept.reducer.per_slot_reduce() for kept in chosen])
        metrics: Dict[str, Any] = {}
        for place, kept in enumerate(chosen):
            found = kept.named(kept.reducer.cross_slot_reduce([part[place] for part in parts]))
            twice = sorted(set(found) & set(metrics))
            if twice:
                raise ValueError(f"Two reducers return the metric {twice[0]!r}.")
            metrics.update(found)
        return metrics


def partial(reducer: Reducer, values: Sequence[float]) -> List[float]:
    """[number, count] of one metric's batches on one rank: enough for `combined`, however many there were."""
    folded = Reducer.SUM if reducer is Reducer.AVG else reducer
    return [folded.of(values), float(len(values))]


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
