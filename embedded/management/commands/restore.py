"""Restore a backup into an empty data folder: `./manage.py restore FILE`."""

import argparse
from pathlib import Path
from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand, CommandError

from embedded import restore


class Command(BaseCommand):
    help = "Restore a backup into an empty data folder (and the empty database of DATABASE_URL)."
    requires_system_checks = []

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument("file", type=Path, help="the file written by `backup`")
        parser.add_argument(
            "--data", type=Path, default=settings.DATA_DIR, metavar="DIR", help="the data folder"
        )

    def handle(self, *_: Any, **options: Any) -> None:
        data: Path = options["data"].absolute()
        try:
            about = restore.read(options["file"], data)
        except (restore.CannotRestore, OSError) as error:
            raise CommandError(str(error)) from error
        self.stdout.write(
            f"Restored into {data}: {about['cluster']}, as of {about['made_at']} (version {about['version']}). "
            f"Start the server at its old address, with the same --data and --port; it finds the runs on hosts again."
        )
