"""On which threads the storage of a checkpoint is asked: one that lets the server wait holds up no other."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from experiments.models import Checkpoint
from webui.waiting.threads import on_clouds, on_files

R = TypeVar("R")


async def on_storage(checkpoint: Checkpoint, function: Callable[[], R]) -> R:
    """Run a function of `experiments.stored_files` for this checkpoint: only the server's own store is its own disk."""
    is_own = checkpoint.storage.get("type", "server") == "server"
    return await on_files(function) if is_own else await on_clouds(function)
