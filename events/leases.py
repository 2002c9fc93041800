"""Leases: the right to do some work, which expires by the database's clock when its holder is frozen or cut off.

A lock lasts as long as the connection of its holder does, and a stopped process keeps its connection. A lease is taken,
renewed and given back by one statement each. A holder that overslept may still write: what it writes must be
harmless, by guarded updates, and between two steps it asks `holds` whether it may continue.
"""

from __future__ import annotations

import os
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

from django.conf import settings
from django.db import DatabaseError, connection

#: what names of leases begin with that only show that a worker is there
WORKER = "worker "

#: A lease taken in the future is of a clock that was set back since, or of a backup: it binds nobody.
_TAKE = """
INSERT INTO events_lease AS lease (name, holder, fence, taken_at, expires_at)
VALUES (%(name)s, %(holder)s, 1, clock_timestamp(), clock_timestamp() + %(seconds)s * interval '1 second')
ON CONFLICT (name) DO UPDATE SET
  holder = excluded.holder, fence = lease.fence + 1, taken_at = excluded.taken_at, expires_at = excluded.expires_at
WHERE lease.taken_at > clock_timestamp() OR (lease.expires_at <= clock_timestamp()
  AND lease.taken_at <= clock_timestamp() - %(every)s * interval '1 second')
RETURNING fence
"""
_EXTEND = """
UPDATE events_lease SET expires_at = clock_timestamp() + %(seconds)s * interval '1 second'
WHERE name = %(name)s AND fence = %(fence)s
"""
_FORGET = """
DELETE FROM events_lease WHERE starts_with(name, %s) AND expires_at < clock_timestamp() - interval '1 day'
"""


class Lease:
    """The right to do the work of this name. `fence` grows with each taker, so an earlier holder is known as one."""

    def __init__(self, name: str, fence: int, seconds: float) -> None:
        self.name, self.fence, self.seconds = name, fence, seconds
        self._renewed = time.monotonic()

    def holds(self) -> bool:
        """Whether it is still ours; renewed when a third of it has passed, so asking often costs nothing."""
        return time.monotonic() - self._renewed < self.seconds / 3 or self.renew()

    def renew(self) -> bool:
        """Hold it for its seconds from now; False when another has taken it since, who does the work now."""
        asked = time.monotonic()
        if not self._extend(self.seconds):
            return False
        self._renewed = asked
        return True

    def give_back(self) -> None:
        """Let the next one have it now. Nothing happens where another has it already."""
        self._extend(0.0)

    @contextmanager
    def kept(self) -> Iterator[None]:
        """Renew it from another thread, around a wait that is longer than the lease; ask `renew` afterwards."""
        done = threading.Event()
        keeper = threading.Thread(target=self._keep, args=(done,), name=f"lease {self.name}", daemon=True)
        keeper.start()
        try:
            yield
        finally:
            done.set()
            keeper.join()

    def _keep(self, done: threading.Event) -> None:
        try:
            while not done.wait(self.seconds / 3):
                try:
                    self.renew()
                except DatabaseError:  # the database is away: what follows asks for itself
                    connection.close()
        finally:
            connection.close()  # this thread's own

    def _extend(self, seconds: float) -> bool:
        with connection.cursor() as cursor:
            cursor.execute(_EXTEND, {"name": self.name, "fence": self.fence, "seconds": seconds})
            return bool(cursor.rowcount)


def take(name: str, seconds: float, *, every: float = 0.0) -> Lease | None:
    """The lease for `seconds`, or None while another has it, or for `every` seconds after it was last taken."""
    asked = {"name": name, "holder": holder(), "seconds": seconds, "every": every}
    with connection.cursor() as cursor:
        cursor.execute(_TAKE, asked)
        row = cursor.fetchone()
    return Lease(name, row[0], seconds) if row else None


@contextmanager
def alone(work: str, *, every: float = 0.0) -> Iterator[Lease | None]:
    """The lease of work that one process at a time does, however many ask for it; None: it is not ours to do now.

    With `every`, requests that come sooner after the last start than these seconds are dropped: messages that
    waited together become one.
    """
    lease = take(work, settings.LEASE_SECONDS, every=every)
    try:
        yield lease
    finally:
        if lease is not None:
            lease.give_back()


def forget_workers() -> None:
    """Remove the rows of workers that have gone. Other leases stay: their fence has to grow."""
    with connection.cursor() as cursor:
        cursor.execute(_FORGET, [WORKER])


def holder() -> str:
    """This process, in words for people who look at the table."""
    return f"{socket.gethostname()}:{os.getpid()}"
