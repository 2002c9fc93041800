"""A process whose clock is not the database's."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta

import pytest
from django.utils import timezone


@contextmanager
def clock_ahead(monkeypatch: pytest.MonkeyPatch, seconds: float) -> Iterator[None]:
    """A worker or web process whose own clock is ahead of the database's; behind it, if negative."""
    real = timezone.now
    with monkeypatch.context() as patch:
        patch.setattr(timezone, "now", lambda: real() + timedelta(seconds=seconds))
        yield
