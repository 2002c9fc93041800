"""Bring the database and the static files to this version; safe at every start, and by several at once."""

import argparse
import importlib
import pkgutil
import time
from collections.abc import Iterator
from typing import Any

from django.apps import apps
from django.core.management import call_command
from django.core.management.base import BaseCommand, CommandError
from django.db import OperationalError, connection
from django.db.backends.utils import CursorWrapper
from django.db.migrations.loader import MigrationLoader
from django.db.migrations.recorder import MigrationRecorder

from trainmaster.quantities import duration
from webui import collected

LOCK_KEY = 0x7472_6D67  # "trmg": of migrations alone
DATABASE_LIMIT_SECONDS = 60.0
MIGRATION_LIMIT_SECONDS = 1800.0


class Command(BaseCommand):
    help = "Migrate the database (one process at a time), create the first admin, collect the static files."
    requires_system_checks = []

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument("--no-static", action="store_true", help="do not collect the static files")

    def handle(self, *_: Any, **options: Any) -> None:
        _wait_for_database()
        with connection.cursor() as cursor:
            _lock(cursor)
            try:
                if not set(_migrations()) <= set(MigrationRecorder(connection).applied_migrations()):
                    call_command("migrate", interactive=False, verbosity=0)
                call_command("create_admin", if_none=True, stdout=self.stdout)
            finally:
                cursor.execute("SELECT pg_advisory_unlock(%s)", [LOCK_KEY])
        if not options["no_static"]:
            collected.collect()


def _migrations() -> Iterator[tuple[str, str]]:
    """(application, name) of each migration, of which none is loaded: to load all takes longer than to start."""
    for app in apps.get_app_configs():
        try:
            folder = importlib.import_module(str(MigrationLoader.migrations_module(app.label)[0]))
        except ModuleNotFoundError:  # an application without a table
            continue
        yield from ((app.label, module.name) for module in pkgutil.iter_modules(folder.__path__))


def _lock(cursor: CursorWrapper) -> None:
    """No lease: its table may be made by what follows. Raises CommandError when another is at it for too long."""
    cursor.execute(f"SET lock_timeout = '{MIGRATION_LIMIT_SECONDS:.0f}s'")
    try:
        cursor.execute("SELECT pg_advisory_lock(%s)", [LOCK_KEY])
    except OperationalError as error:
        raise CommandError(
            f"Another process has been preparing this database for {duration(MIGRATION_LIMIT_SECONDS)}. "
            "Wait until it is done, or stop it if it hangs, then start again."
        ) from error
    finally:
        cursor.execute("RESET lock_timeout")


def _wait_for_database() -> None:
    limit = time.monotonic() + DATABASE_LIMIT_SECONDS
    while True:
        try:
            connection.ensure_connection()
            return
        except OperationalError as error:
            if time.monotonic() > limit:
                raise CommandError(f"The database did not respond: {error}") from error
            time.sleep(0.5)
