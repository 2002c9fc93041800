"""Whether the sums of goodput agree with the records that they are made of; and making them again."""

import argparse
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from dispatch.keeping import slot_days

_SHOWN = 10


class Command(BaseCommand):
    help = "Check that the sums of goodput by day agree with the records of each attempt; --rebuild makes them again."

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument("--rebuild", action="store_true", help="make the sums again from the records")

    def handle(self, *_: Any, **options: Any) -> None:
        if options["rebuild"]:
            self.stdout.write(f"{slot_days.rebuild():,} sums were made again.")
        found = slot_days.differences()
        if not found:
            self.stdout.write("The sums agree with the records.")
            return
        for each in found[:_SHOWN]:
            about = (
                f"{each.day}, pool {each.pool_id}, user {each.owner_id}, experiment {each.experiment_number}"
            )
            self.stdout.write(
                f"{about}, {each.part}: the records say {each.told}, the sums {each.summed} slot-microseconds"
            )
        raise CommandError(
            f"{len(found):,} sums do not agree with the records. Run `manage.py goodput_sums --rebuild`."
        )
