"""Surveys, plans and previews of a long queue make hundreds of thousands of values at once, and keep them all."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def no_garbage_collection() -> Iterator[None]:
    """So many values are made at once, all of them kept, that looking through them for garbage takes half the time."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()
