"""Work that one process at a time does, however many ask for it."""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from contextlib import contextmanager

from django.db import connection

#: first key of these advisory locks; the second is made of the work's name
LOCK_CLASS = 0x7265_6164


@contextmanager
def alone(work: str) -> Iterator[bool]:
    """Whether nobody else does this now; PostgreSQL forgets the lock of a worker that dies."""
    keys = [LOCK_CLASS, zlib.crc32(work.encode()) >> 1]
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_try_advisory_lock(%s, %s)", keys)
        mine = bool(cursor.fetchone()[0])
    try:
        yield mine
    finally:
        if mine:
            with connection.cursor() as cursor:
                cursor.execute("SELECT pg_advisory_unlock(%s, %s)", keys)
