"""One broken row or step must not keep the others from theirs: what a sweep cannot do is logged, and it goes on."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager

from django.db import InterfaceError, OperationalError

log = logging.getLogger(__name__)


@contextmanager
def going_on(what: str) -> Iterator[None]:
    """Log what breaks inside, with `what` it was about. A database that is away ends all: every other step needs it."""
    try:
        yield
    except (OperationalError, InterfaceError):
        raise
    except Exception:
        log.exception("%s failed; retrying in the next sweep.", what)
