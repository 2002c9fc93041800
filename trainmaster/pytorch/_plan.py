"""What `Trainer.fit` is told to do."""

from __future__ import annotations

import math
from typing import Any, Dict, NamedTuple, Optional

from trainmaster.pytorch._units import Batch, Epoch, TrainUnit

POLICIES = ("best", "all", "none")


class Plan(NamedTuple):
    """How long to train, and after how much to do what; None of a period: only at the end."""

    max_length: TrainUnit
    checkpoint_period: Optional[TrainUnit] = None
    validation_period: Optional[TrainUnit] = None
    reporting_period: TrainUnit = Batch(100)
    checkpoint_policy: str = "best"
    step_zero_validation: bool = False
    test_mode: bool = False

    def counts_epochs(self) -> bool:
        """Whether any length or period is in epochs."""
        units = (self.max_length, self.checkpoint_period, self.validation_period, self.reporting_period)
        return any(isinstance(unit, Epoch) for unit in units)


class Goal(NamedTuple):
    """The searcher's metric; `name` None when there is no searcher."""

    name: Optional[str] = None
    smaller_is_better: bool = True

    def better(self, new: float, old: Optional[float]) -> bool:
        """Whether `new` is better than the best so far; NaN never is."""
        if math.isnan(new):
            return False
        return old is None or (new < old if self.smaller_is_better else new > old)


def goal_of(config: Dict[str, Any]) -> Goal:
    """As the config's searcher says."""
    searcher = config.get("searcher") or {}
    smaller = searcher.get("smaller_is_better")
    return Goal(searcher.get("metric"), True if smaller is None else bool(smaller))


def checked_unit(value: Any, name: str) -> Optional[TrainUnit]:
    """`value`, which may be None. TypeError for what is no TrainUnit."""
    if value is not None and not isinstance(value, TrainUnit):
        raise TypeError(
            f"fit({name}={value!r}): give pytorch.Batch(n), pytorch.Epoch(n) or pytorch.Record(n), "
            f"not {type(value).__name__}."
        )
    return value


def checked_policy(policy: str) -> str:
    """ValueError for what is no policy."""
    if policy not in POLICIES:
        raise ValueError(f"checkpoint_policy is {policy!r}; it must be one of {', '.join(POLICIES)}.")
    return policy
