"""A PostgreSQL (durable commits) and a Redis of a benchmark's own."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def parts(folder: Path, redis_folder: Path) -> Iterator[None]:
    """PostgreSQL and Redis, with Django set up on them."""
    from embedded import folder as folders
    from embedded import postgres
    from tests.rig.parts import databases_account, end, running_redis

    owner = databases_account()
    server = postgres.prepare(folders.prepare(folder, owner), owner, durable=True)
    child = postgres.start(server, folder / "postgres.log")
    server.create_database()
    os.environ["DATABASE_URL"] = server.url()
    try:
        with running_redis(redis_folder) as redis_server:
            os.environ["REDIS_URL"] = redis_server.url()
            import django

            django.setup()
            from django.core.management import call_command

            call_command("migrate", verbosity=0)
            yield
    finally:
        import signal

        end(child, signal.SIGINT)
