"""Metrics as plain numbers."""

from __future__ import annotations

import logging
from typing import Any, Dict, Set

import numpy as np
import torch

logger = logging.getLogger("trainmaster.pytorch")

_complained: Set[str] = set()


def held(metrics: Any) -> Dict[str, Any]:
    """What `train_batch` returned, as a dict whose tensors hold no graph. TypeError for other things than metrics."""
    if isinstance(metrics, torch.Tensor):
        metrics = {"loss": metrics}
    if not isinstance(metrics, dict):
        raise TypeError(
            "train_batch() must return a dict of metrics (it may be empty) or the loss as a tensor, "
            f"not {type(metrics).__name__}."
        )
    kept: Dict[str, Any] = {}
    for name, value in metrics.items():
        if isinstance(value, torch.Tensor) and _size(value) != 1:
            _left_out(name, value)  # now: it may be large, and a reporting period long
        else:
            kept[name] = value.detach() if isinstance(value, torch.Tensor) else value
    return kept


def to_numbers(metrics: Dict[str, Any], keep_others: bool = False) -> Dict[str, Any]:
    """Numbers and one-element tensors and arrays as floats; others are left out with a word, or kept as they are."""
    found: Dict[str, Any] = {}
    for name, value in metrics.items():
        if isinstance(value, (torch.Tensor, np.ndarray, np.generic)) and _size(value) == 1:
            found[name] = float(value.item())
        elif isinstance(value, (bool, int, float)):
            found[name] = float(value)
        elif keep_others:
            found[name] = value.tolist() if isinstance(value, (torch.Tensor, np.ndarray)) else value
        else:
            _left_out(name, value)
    return found


def to_arrays(metrics: Dict[str, Any]) -> Dict[str, Any]:
    """The tensors among them as NumPy arrays, all else as it is."""
    return {
        name: _array(value) if isinstance(value, torch.Tensor) else value for name, value in metrics.items()
    }


def _array(value: Any) -> Any:
    value = value.detach().cpu()
    if value.layout is not torch.strided:
        value = value.to_dense()
    return (value.float() if value.dtype is torch.bfloat16 else value).numpy()  # NumPy has no bfloat16


def _left_out(name: str, value: Any) -> None:
    if name not in _complained:
        _complained.add(name)
        logger.warning(
            "The metric %r is of type %s, not a single number, and is skipped.", name, type(value).__name__
        )


def _size(value: Any) -> int:
    return int(value.numel()) if isinstance(value, torch.Tensor) else int(value.size)
