"""Metrics that a program's own reducers make of all batches of all ranks."""

from __future__ import annotations

from typing import Any, Callable, Dict, List, Optional, Union

from trainmaster.core import DistributedContext
from trainmaster.pytorch._reducers import MetricReducer, Wrapped, wrapped


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
        without it must be a dict of metrics.
        """
        kept = wrapped(reducer, name, for_training, for_validation)
        kept.reducer.reset()
        self._wrapped_reducers.append(kept)
        return kept.reducer

    def reset_reducers(self) -> None:
        """Reset all of them; it is done at the right times without this."""
        for kept in self._wrapped_reducers:
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
