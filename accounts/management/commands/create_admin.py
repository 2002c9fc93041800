"""Make the admin user with a generated password, which is printed once and stored nowhere."""

import argparse
from typing import Any

from django.core.management.base import BaseCommand, CommandError
from django.db import transaction

from accounts import passwords, users
from accounts.models import AccessToken, LoginToken, User
from accounts.refusals import Refusal
from events import origin
from trainmaster.quantities import counted


class Command(BaseCommand):
    help = "Create an admin user with a generated password, which is printed once."

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument("--username", default="admin")
        parser.add_argument("--if-none", action="store_true", help="do nothing if an admin already exists")
        parser.add_argument(
            "--reset",
            action="store_true",
            help="set a new password for the user, make them an admin, log them out everywhere and revoke their "
            "access tokens",
        )
        parser.add_argument("--keep-tokens", action="store_true", help="with --reset, keep the access tokens")

    def handle(self, *_: Any, **options: Any) -> None:
        name = options["username"]
        if options["if_none"] and User.objects.filter(role=User.Role.ADMIN).exists():
            return
        user = User.objects.filter(username=name).first()
        if user is not None and not options["reset"]:
            raise CommandError(f"The user {name} already exists; use --reset to set a new password.")
        password, done = passwords.generated(), list[str]()
        with origin.asked_from(origin.HERE), transaction.atomic():
            if user is None:
                _create(name, password)
            else:
                done = _reset(user, password, keep_tokens=options["keep_tokens"])
        for sentence in done:
            self.stdout.write(sentence)
        self.stdout.write(f"User {name}, password {password} (shown only once; change it after you log in)")


def _create(name: str, password: str) -> None:
    values = {"username": name, "role": User.Role.ADMIN}
    try:
        users.create(values, password=password, actor=origin.account())
    except Refusal as refusal:
        raise CommandError(str(refusal)) from refusal


def _reset(user: User, password: str, *, keep_tokens: bool) -> list[str]:
    """Let whoever has the password in as an admin, and nobody else; return what was done."""
    role, was_active = user.role, user.is_active
    logins = LoginToken.objects.filter(user=user).count()
    access = AccessToken.objects.filter(user=user, revoked_at=None).count()
    now = {"role": User.Role.ADMIN, "is_active": True}
    users.change(user, now, asking=None, password=password, keep_tokens=keep_tokens)
    done = [f"Logged {user.username} out everywhere ({counted(logins, 'login token')}, and browsers)."]
    done.append("Access tokens stay valid." if keep_tokens else f"Revoked {counted(access, 'access token')}.")
    if role != user.role:
        done.append(f"Changed the role of {user.username} from {role} to {user.role}.")
    if not was_active:
        done.append(f"Activated {user.username}.")
    return done
