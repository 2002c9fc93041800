"""PostgreSQL's own programs, `pg_dump` and `pg_restore`, against the database that the settings name."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import Any

from django.core.exceptions import ImproperlyConfigured

from embedded import postgres

_SERVICE = "trainmaster"


class Failed(Exception):
    """A program of PostgreSQL has failed; the text is a sentence with what it said."""


def dump(database: dict[str, Any], target: Path) -> None:
    """Write the database as it is at one moment, compressed; others go on writing meanwhile. Raises Failed."""
    _run(
        "pg_dump",
        [
            "--format=custom",
            "--no-owner",
            "--no-privileges",
            f"--file={target}",
            f"--dbname=service={_SERVICE}",
        ],
        database,
    )


def load(database: dict[str, Any], source: Path) -> None:
    """Fill an empty database with a dump, wholly or not at all. Raises Failed."""
    options = ["--no-owner", "--no-privileges", "--single-transaction", "--exit-on-error"]
    _run("pg_restore", [*options, f"--dbname=service={_SERVICE}", str(source)], database)


def _run(name: str, arguments: list[str], database: dict[str, Any]) -> None:
    """The password stands in a file that only we may read, never among the arguments."""
    with tempfile.TemporaryDirectory(prefix="trainmaster-pg-") as folder:
        service = Path(folder, "service.conf")
        descriptor = os.open(service, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "w") as file:
            file.write(_service(database))
        environment = {name: value for name, value in os.environ.items() if not name.startswith("PG")}
        environment |= {"PGSERVICEFILE": str(service), "LC_ALL": "C.UTF-8"}
        done = subprocess.run(
            [_program(name), *arguments], env=environment, capture_output=True, text=True, check=False
        )
    if done.returncode != 0:
        raise Failed(f"{name} failed: {done.stderr.strip()[-2000:] or f'exit code {done.returncode}'}")


def _service(database: dict[str, Any]) -> str:
    """A connection service file of libpq for an entry of Django's DATABASES."""
    names = {"HOST": "host", "PORT": "port", "USER": "user", "PASSWORD": "password", "NAME": "dbname"}
    fields = {ours: str(database.get(theirs) or "") for theirs, ours in names.items()}
    fields |= {name: str(value) for name, value in database.get("OPTIONS", {}).items() if name != "pool"}
    lines = [f"{name}={value}" for name, value in fields.items() if value]
    return "\n".join([f"[{_SERVICE}]", *lines, ""])


def _program(name: str) -> str:
    """The one that comes with the server's own PostgreSQL, which reads older servers too; else the machine's."""
    try:
        if (bundled := postgres.bundled() / "bin" / name).is_file():
            return str(bundled)
    except ImproperlyConfigured:
        pass
    if found := shutil.which(name):
        return found
    raise Failed(
        f"{name} was not found. Install requirements.txt, which includes it, or PostgreSQL's client programs."
    )
