"""Write a backup of the running server: `./manage.py backup FILE`."""

import argparse
from pathlib import Path
from typing import Any

from django.core.management.base import BaseCommand, CommandError
from django.db import OperationalError

from embedded import backup
from trainmaster import quantities


class Command(BaseCommand):
    help = "Back up the database, secrets and stored files into one file while the server runs."
    requires_system_checks = []

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument("file", type=Path, help="the file to write; it must not exist yet")

    def handle(self, *_: Any, **options: Any) -> None:
        target: Path = options["file"].absolute()
        try:
            made = backup.write(target)
        except OperationalError as error:
            raise CommandError(
                f"The database did not respond: {error}\nRun the backup while the server runs, with the server's "
                "environment: TRAINMASTER_DATA_DIR, or DATABASE_URL."
            ) from error
        except (backup.CannotBackUp, OSError) as error:
            raise CommandError(str(error)) from error
        self.stdout.write(
            f"{target}: {quantities.size(made.bytes)}, with {made.files} stored files. Keep it where only admins can "
            "read it: it contains the server's secrets."
        )
