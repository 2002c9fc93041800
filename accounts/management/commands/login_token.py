"""A login token for scripts on the server's own machine; whoever runs this can read the database too."""

import argparse
from typing import Any

from django.core.management.base import BaseCommand, CommandError
from django.db import transaction

from accounts.models import LoginToken, User
from events import origin
from events.models import Event
from events.record import record


class Command(BaseCommand):
    help = "Print a new login token for a user, to use as TRAINMASTER_TOKEN."

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument("username")

    def handle(self, *_: Any, **options: Any) -> None:
        user = User.objects.filter(username=options["username"], is_active=True).first()
        if user is None:
            raise CommandError(f"There is no active user {options['username']!r}.")
        with origin.asked_from(origin.HERE), transaction.atomic():
            token = LoginToken.issue(user)
            record(Event.Kind.USER, user.pk, reason="login_token_issued", actor=origin.account())
        self.stdout.write(token)
