"""A PostgreSQL (durable commits) and a Redis of a benchmark's own."""

from __future__ import annotations

import hashlib
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
#: the checkout whose code is measured, and whose tables are wanted
CODE = Path(os.environ.get("CODE") or ROOT).resolve()
_MIGRATED = f"migrated-{hashlib.sha256(bytes(CODE)).hexdigest()[:8]}"


@contextmanager
def parts(folder: Path, redis_folder: Path) -> Iterator[None]:
    """PostgreSQL and Redis, with Django set up on them."""
    from tests.rig.parts import running_redis

    with running_redis(redis_folder) as redis_server:
        os.environ["REDIS_URL"] = redis_server.url()
        subprocess.run(["cp", "-a", _migrated() / "postgres", folder], check=True)
        with _running_postgres(folder):
            import django

            django.setup()
            yield


@contextmanager
def _running_postgres(folder: Path) -> Iterator[None]:
    """That of the data folder; DATABASE_URL leads to it."""
    from embedded import folder as folders
    from embedded import postgres
    from tests.rig.parts import databases_account, end

    owner = databases_account()
    server = postgres.prepare(folders.prepare(folder, owner), owner, durable=True)
    child = postgres.start(server, folder / "postgres.log")
    server.create_database()
    os.environ["DATABASE_URL"] = server.url()
    try:
        yield
    finally:
        end(child, signal.SIGINT)


def _migrated() -> Path:
    """A data folder to copy, with the tables of the measured code: all benchmarks of one `make bench` share it."""
    from tests.rig.parts import first_alone, private_folder, shared_folder

    made = shared_folder() / _MIGRATED
    with first_alone(_MIGRATED) as first_here:
        if first_here:
            with private_folder("migrated") as path:
                with _running_postgres(path):
                    command = [sys.executable, "manage.py", "migrate", "--verbosity", "0"]
                    path_of_code = os.pathsep.join((str(CODE), str(CODE / "queue")))
                    subprocess.run(
                        command, cwd=CODE, env={**os.environ, "PYTHONPATH": path_of_code}, check=True
                    )
                made.mkdir()
                made.chmod(0o711)
                (path / "postgres").rename(made / "postgres")
    return made
