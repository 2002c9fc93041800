"""`context.experimental`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from trainmaster.pytorch._reducers import ReducerContext

if TYPE_CHECKING:
    from trainmaster.pytorch._trial_context import PyTorchTrialContext


class PyTorchExperimentalContext(ReducerContext):
    """Settings that few trials need, and the old place of the context's reducers, which are the same ones."""

    def __init__(self, context: PyTorchTrialContext) -> None:
        self._context = context
        self.distributed = context.distributed
        self._wrapped_reducers = context._wrapped_reducers
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


def _scaler(device: Any) -> Any:
    if hasattr(torch.amp, "GradScaler"):
        return torch.amp.GradScaler(device.type, enabled=device.type == "cuda")
    return torch.cuda.amp.GradScaler(enabled=device.type == "cuda")  # before PyTorch 2.3
