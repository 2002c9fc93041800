"""Fills an empty data folder and an empty database from a backup (`embedded/backup.py`).

What is running on hosts goes on: runs that the backup knows are found again by their names, bring what the restored
database has not, and those that it does not know are refused and end. So that these never share a name with new ones,
attempts are numbered from the next thousand.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import tarfile
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
from django.core.exceptions import ImproperlyConfigured

from embedded import account, backup, folder, lock, postgres, processes
from events import origin
from webui import environment

_ATTEMPTS = (
    "UPDATE accounts_cluster SET attempts_above = (greatest(attempts_above, highest) / 1000 + 1) * 1000 \
FROM (SELECT coalesce(max(run_count), 0) AS highest FROM jobs_task) AS tasks"
)
_NOTE = (
    "INSERT INTO events_event (at, kind, subject, from_state, to_state, reason, actor, origin, detail, task_id) \
VALUES (now(), 'server', 'backup', '', '', 'restored', %s, %s, jsonb_build_object('made_at', %s::text), '')"
)
_STOP_LIMIT_SECONDS = 60.0


class CannotRestore(Exception):
    """The text is a sentence."""


def read(source: Path, data: Path) -> dict[str, Any]:
    """Restore `source` into the data folder, and the database that DATABASE_URL names or the folder's own.

    Returns what the backup says of itself. Raises CannotRestore; a folder or database that has something in it is
    left as it is.
    """
    try:
        with tarfile.open(source) as archive:
            about = _about(archive, source)
            _refuse_full(data)
            _restore(archive, data, str(about.get("made_at", "")))
            return about
    except (tarfile.TarError, EOFError) as error:
        raise CannotRestore(f"{source} is not a complete backup: {error}.") from error
    except (postgres.Failed, ImproperlyConfigured, lock.Held) as error:
        raise CannotRestore(str(error)) from error


def _about(archive: tarfile.TarFile, source: Path) -> dict[str, Any]:
    first = archive.next()
    file = archive.extractfile(first) if first is not None and first.name == backup.ABOUT else None
    about = json.load(file) if file else {}
    if about.get("format") != backup.FORMAT:
        raise CannotRestore(
            f"{source} is not a backup in this format (found: {about.get('format')!r}, allowed: {backup.FORMAT}). "
            "Restore it with the version that created it, then upgrade."
        )
    return dict(about)


def _refuse_full(data: Path) -> None:
    found = sorted(path.name for path in data.iterdir()) if data.is_dir() else []
    if found:
        raise CannotRestore(
            f"{data} is not empty ({', '.join(found[:5])} …): a backup can only be restored into an empty data folder. "
            "Choose another folder with --data, or move this one away."
        )


def _restore(archive: tarfile.TarFile, data: Path, made_at: str) -> None:
    owner = account.current() if environment.text("DATABASE_URL") else account.for_databases()
    folder.prepare(data, owner)
    with lock.held(data), _database(data, owner) as database:
        _refuse_used(database)
        with tempfile.TemporaryDirectory(prefix=".restore-", dir=data) as scratch:
            dump = Path(scratch, backup.DUMP)
            for member in archive:
                _place(archive, member, data, dump)
            postgres.load(database, dump)
        with _connected(database) as connection:
            connection.execute(_ATTEMPTS)
            connection.execute(_NOTE, [origin.account(), origin.HERE, made_at])


def _place(archive: tarfile.TarFile, member: tarfile.TarInfo, data: Path, dump: Path) -> None:
    """Lay one file where it was. Nothing of an archive gets out of the folder, or becomes a link."""
    if member.name == backup.ABOUT:
        return
    parts = Path(member.name).parts
    known = member.name in {backup.DUMP, backup.SECRET} or parts[0] in backup.FOLDERS
    content = archive.extractfile(member) if known and ".." not in parts and member.isreg() else None
    if content is None:
        raise CannotRestore(
            f"The backup contains {member.name!r}, which is not part of a Trainmaster backup."
        )
    target = dump if member.name == backup.DUMP else data / member.name
    target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    descriptor = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        shutil.copyfileobj(content, file, 1024 * 1024)
    os.utime(target, (member.mtime, member.mtime))


@contextlib.contextmanager
def _database(data: Path, owner: account.Account) -> Iterator[dict[str, Any]]:
    """The database to fill: DATABASE_URL's, or an own PostgreSQL in the folder that ends with the block."""
    if given := environment.text("DATABASE_URL"):
        yield environment.database(given)
        return
    server = postgres.prepare(data, owner)
    (data / "log").mkdir(mode=0o700, exist_ok=True)
    child = postgres.start(server, data / "log" / "postgres.log")
    try:
        server.create_database()
        yield environment.database(server.url())
    finally:
        child.send_signal(signal.SIGINT)
        if not processes.wait_until(lambda: child.poll() is not None, _STOP_LIMIT_SECONDS):
            child.kill()
            child.wait()


def _refuse_used(database: dict[str, Any]) -> None:
    with _connected(database) as connection:
        row = connection.execute("SELECT count(*) FROM pg_tables WHERE schemaname = 'public'").fetchone()
    if row and row[0]:
        raise CannotRestore(
            f"The database {database['NAME']} already has {row[0]} tables: a backup can only be restored into an "
            "empty database. Create a new database and set DATABASE_URL to it."
        )


def _connected(database: dict[str, Any]) -> psycopg.Connection[Any]:
    try:
        return psycopg.connect(
            host=database["HOST"] or None,
            port=database["PORT"] or None,
            user=database["USER"] or None,
            password=database["PASSWORD"] or None,
            dbname=database["NAME"],
            **{"connect_timeout": 10, **database["OPTIONS"]},
        )
    except psycopg.OperationalError as error:
        raise CannotRestore(f"The database did not respond: {error}") from error
