"""Servers that tests borrow: started once, and given back as after a first start.

A start of the whole server costs nine seconds of processor; to put its rows back costs a tenth of one. Ids go on where
the last borrower has left them, as in a server that has been in use, so no test may assume an id.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import psycopg
import redis

from tests.rig import parts
from tests.rig.server import Server

#: of the database, but not of its first start: what migrations have done
_KEPT = {"django_migrations"}
#: ids of the first borrower begin here, so that a test which assumes one fails at once
_FIRST_ID = 101
_TABLES = "SELECT tablename FROM pg_tables WHERE schemaname = 'public' ORDER BY 1"
_SEQUENCES = (
    "SELECT sequencename FROM pg_sequences WHERE schemaname = 'public' AND coalesce(last_value, 0) < %s"
)


@dataclass
class _Lent:
    """A server, the rows that it had after its first start, by table, and the folder that it leaves."""

    server: Server
    rows: dict[str, bytes]
    folder: contextlib.ExitStack

    def end(self) -> None:
        self.server.close()
        self.folder.close()


_idle: dict[str, list[_Lent]] = {}


@contextmanager
def borrowed(address: str) -> Iterator[Server]:
    """A server on the address and on loopback, with the settings of all tests and the rows of a first start.

    Kill what you like of it: the next borrower gets it whole, or another one.
    """
    lent = _whole(address) or _started(address)
    try:
        yield lent.server
    finally:
        idle = _idle.setdefault(address, [])
        if idle:  # two at a time are rare, and an idle one costs a twentieth of a core
            lent.end()
        else:
            idle.append(lent)


def end() -> None:
    """End those that nobody has borrowed."""
    for lent in [each for idle in _idle.values() for each in idle]:
        lent.end()
    _idle.clear()


def _started(address: str) -> _Lent:
    folder = contextlib.ExitStack()
    path = folder.enter_context(parts.private_folder("server"))
    path.chmod(0o711)
    server = Server(path / "data", address).start()
    with psycopg.connect(server.database_url) as connection:
        lent = _Lent(server, {table: _copied(connection, table) for table in _tables(connection)}, folder)
        for (sequence,) in connection.execute(_SEQUENCES, [_FIRST_ID]).fetchall():
            connection.execute("SELECT setval(%s::regclass, %s)", [sequence, _FIRST_ID - 1])
    return lent


def _whole(address: str) -> _Lent | None:
    """One that was given back, with the rows of its first start; a broken one is ended."""
    idle = _idle.get(address, [])
    while idle:
        lent = idle.pop()
        with contextlib.suppress(OSError, psycopg.Error, redis.RedisError):
            if lent.server.is_whole():
                _put_back(lent)
                return lent
        lent.end()
    return None


def _put_back(lent: _Lent) -> None:
    with psycopg.connect(lent.server.database_url) as connection:
        tables = ", ".join(lent.rows)
        connection.execute("SET LOCAL lock_timeout = '30s'")
        connection.execute(f"LOCK TABLE {tables} IN ACCESS EXCLUSIVE MODE")
        connection.execute("SET LOCAL session_replication_role = replica")  # rows refer to one another
        for table, rows in lent.rows.items():
            connection.execute(f"DELETE FROM {table}")
            if rows:
                with connection.cursor().copy(f"COPY {table} FROM STDIN") as copy:
                    copy.write(rows)
    redis.Redis.from_url(lent.server.environment["REDIS_URL"]).flushall()


def _tables(connection: psycopg.Connection) -> list[str]:
    return [name for (name,) in connection.execute(_TABLES).fetchall() if name not in _KEPT]


def _copied(connection: psycopg.Connection, table: str) -> bytes:
    with connection.cursor().copy(f"COPY {table} TO STDOUT") as copy:
        return b"".join(bytes(chunk) for chunk in copy)
