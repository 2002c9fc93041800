"""Make the admin user with a generated password, which is printed once and stored nowhere."""

import argparse
import secrets
import string
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from accounts import names, passwords
from accounts.models import LoginToken, User
from accounts.refusals import Refusal

LETTERS = string.ascii_letters + string.digits
LENGTH = 20


class Command(BaseCommand):
    help = "Create an admin user with a generated password, which is printed once."

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument("--username", default="admin")
        parser.add_argument("--if-none", action="store_true", help="do nothing if an admin already exists")
        parser.add_argument(
            "--reset",
            action="store_true",
            help="set a new password for the user and log the user out everywhere",
        )

    def handle(self, *_: Any, **options: Any) -> None:
        name = options["username"]
        if options["if_none"] and User.objects.filter(role=User.Role.ADMIN).exists():
            return
        user = User.objects.filter(username=name).first()
        if user is not None and not options["reset"]:
            raise CommandError(f"The user {name} already exists; use --reset to set a new password.")
        if user is None:
            user = User(username=name)
            try:
                names.check_name(user, name)
            except Refusal as refusal:
                raise CommandError(str(refusal)) from refusal
        user.role = User.Role.ADMIN
        password = _password()
        passwords.set_password(user, password, is_hashed=False)
        user.save()
        LoginToken.objects.filter(user=user).delete()
        self.stdout.write(f"User {name}, password {password} (shown only once; change it after you log in)")


def _password() -> str:
    """Random, and strong by our own rule: upper, lower and a digit."""
    while True:
        password = "".join(secrets.choice(LETTERS) for _ in range(LENGTH))
        if passwords.weakness(password) is None:
            return password
