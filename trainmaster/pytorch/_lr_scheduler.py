"""Learning rate schedulers that the trainer steps."""

from __future__ import annotations

import enum
from typing import Any, Dict, List


class LRScheduler:
    """A PyTorch scheduler and when it steps; everything else is asked of the scheduler itself."""

    class StepMode(enum.Enum):
        """When the trainer calls `step()`: at every `frequency`-th of these; MANUAL_STEP: never, the trial does."""

        STEP_EVERY_EPOCH = 1
        STEP_EVERY_BATCH = 2
        MANUAL_STEP = 3
        STEP_EVERY_OPTIMIZER_STEP = 4

    def __init__(self, scheduler: Any, step_mode: LRScheduler.StepMode, frequency: int = 1) -> None:
        if not isinstance(step_mode, LRScheduler.StepMode):
            raise TypeError(f"step_mode is {step_mode!r}; it must be one of LRScheduler.StepMode.")
        if isinstance(frequency, bool) or not isinstance(frequency, int) or frequency < 1:
            raise ValueError(f"frequency is {frequency!r}; it must be a whole number, 1 or more.")
        self._scheduler = scheduler
        self._step_mode = step_mode
        self._frequency = frequency

    def __getattr__(self, name: str) -> Any:
        if name == "_scheduler":  # while it is being unpickled
            raise AttributeError(name)
        return getattr(self._scheduler, name)

    def step(self, *arguments: Any, **named: Any) -> None:
        """Step now, whatever the mode."""
        self._scheduler.step(*arguments, **named)

    def get_last_lr(self) -> List[float]:
        rates: List[float] = self._scheduler.get_last_lr()
        return rates

    def state_dict(self) -> Dict[str, Any]:
        state: Dict[str, Any] = self._scheduler.state_dict()
        return state

    def load_state_dict(self, state_dict: Dict[str, Any]) -> None:
        self._scheduler.load_state_dict(state_dict)

    def after_batch(self, batches: int, aggregation: int, epochs: int, epoch_ended: bool) -> None:
        """Step as often as is due; the numbers count what has been done since the start of the training.

        The optimizer steps after every `aggregation` batches. Until then the batches' steps wait, so that gradients
        that are gathered together have one learning rate.
        """
        mode, frequency, times = self._step_mode, self._frequency, 0
        if mode is LRScheduler.StepMode.STEP_EVERY_EPOCH:
            times = int(epoch_ended and epochs % frequency == 0)
        elif batches % aggregation == 0:
            if mode is LRScheduler.StepMode.STEP_EVERY_BATCH:
                times = batches // frequency - (batches - aggregation) // frequency
            elif mode is LRScheduler.StepMode.STEP_EVERY_OPTIMIZER_STEP:
                times = int(batches // aggregation % frequency == 0)
        for _ in range(times):
            self._scheduler.step()
