"""`context.experimental`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Callable, Dict, List, Optional, Union

import torch

from trainmaster.pytorch._reducers import MetricReducer, Wrapped

if TYPE_CHECKING:
    from trainmaster.pytorch._trial_context import PyTorchTrialContext


class PyTorchExperimentalContext:
    """Settings that few trials need."""

    def __init__(self, context: PyTorchTrialContext) -> None:
        self._context = context
        self._auto_amp = False
        self._auto_to_device = True
        self._data_checks = True

    def use_amp(self) -> None:
        """Train in mixed precision: float16 with a gradient scaler on a GPU, bfloat16 without one on a CPU.

        Everything is automatic as long as `context.backward` and `context.step_optimizer` are used.
        """
        if self._auto_amp:
            return
        self._context.wrap_scaler(_scaler(self._context.device))
        self._auto_amp = True

    def disable_auto_to_device(self) -> None:
        """Hand batches to the trial as the loader gives them; it then calls `context.to_device` by itself."""
        self._auto_to_device = False

    def disable_dataset_reproducibility_checks(self) -> None:
        """Allow loaders other than pytorch.DataLoader. They share the data among ranks by themselves.

        A trial that goes on in the middle of an epoch then begins a new pass over the data.
        """
        self._data_checks = False

    def wrap_reducer(
        self,
        reducer: Union[MetricReducer, Callable[[List[Any]], Any]],
        name: Optional[str] = None,
        for_training: bool = True,
        for_validation: bool = True,
    ) -> MetricReducer:
        """The old place of `context.wrap_reducer`."""
        return self._context.wrap_reducer(reducer, name, for_training, for_validation)

    def reset_reducers(self) -> None:
        """Reset all wrapped reducers; the Trainer does it at the right times."""
        for kept in self._context._wrapped_reducers:
            kept.reducer.reset()

    def reduce_metrics(self, for_training: bool) -> Dict[str, Any]:
        """The metrics of the wrapped reducers; all ranks must call, and all get them."""
        return self._reduce([kept for kept in self._context._wrapped_reducers if kept.is_for(for_training)])

    def _reduce(self, chosen: List[Wrapped]) -> Dict[str, Any]:
        if not chosen:
            return {}
        parts = self._context.distributed.allgather([kept.reducer.per_slot_reduce() for kept in chosen])
        metrics: Dict[str, Any] = {}
        for place, kept in enumerate(chosen):
            found = kept.named(kept.reducer.cross_slot_reduce([part[place] for part in parts]))
            twice = sorted(set(found) & set(metrics))
            if twice:
                raise ValueError(f"Two reducers give the metric {twice[0]!r}.")
            metrics.update(found)
        return metrics


def _scaler(device: Any) -> Any:
    if hasattr(torch.amp, "GradScaler"):
        return torch.amp.GradScaler(device.type, enabled=device.type == "cuda")
    return torch.cuda.amp.GradScaler(enabled=device.type == "cuda")  # before PyTorch 2.3
