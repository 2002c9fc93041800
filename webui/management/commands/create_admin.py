"""Make the admin user with a generated password, which is printed once and stored nowhere."""

import argparse
import secrets
import string
from typing import Any

from django.core.management.base import BaseCommand, CommandError
from django.db import transaction

from accounts import names, passwords, tokens
from accounts.models import LoginToken, User
from accounts.refusals import Refusal
from events import origin
from events.models import Event
from events.record import record
from trainmaster.quantities import counted

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
        password, done = _password(), list[str]()
        with origin.asked_from(origin.HERE), transaction.atomic():
            if user is None:
                _create(name, password)
            else:
                done = _reset(user, password, keep_tokens=options["keep_tokens"])
        for sentence in done:
            self.stdout.write(sentence)
        self.stdout.write(f"User {name}, password {password} (shown only once; change it after you log in)")


def _create(name: str, password: str) -> None:
    user = User(username=name, role=User.Role.ADMIN)
    try:
        names.check_name(user, name)
    except Refusal as refusal:
        raise CommandError(str(refusal)) from refusal
    passwords.set_password(user, password, is_hashed=False)
    user.save()
    record(Event.Kind.USER, user.pk, to_state=user.role, reason="created", actor=origin.account())


def _reset(user: User, password: str, *, keep_tokens: bool) -> list[str]:
    """Let whoever has the password in as an admin, and nobody else; return what was done."""
    role, was_active = user.role, user.is_active
    user.role, user.is_active = User.Role.ADMIN, True
    passwords.set_password(user, password, is_hashed=False)
    user.save()
    logins, _ = LoginToken.objects.filter(user=user).delete()
    done = [f"Logged {user.username} out everywhere ({counted(logins, 'login token')}, and browsers)."]
    if keep_tokens:
        done.append("Access tokens stay valid.")
    else:
        done.append(f"Revoked {counted(tokens.revoke_all(user), 'access token')}.")
    if role != User.Role.ADMIN:
        done.append(f"Changed the role of {user.username} from {role} to {user.role}.")
    if not was_active:
        done.append(f"Activated {user.username}.")
    changed = ["password", *(["role"] if role != user.role else []), *([] if was_active else ["active"])]
    record(
        Event.Kind.USER, user.pk, from_state=role, to_state=user.role, reason="changed", actor=origin.account(),
        detail={"changed": changed, "accessTokens": "kept" if keep_tokens else "revoked"},
    )  # fmt: skip
    return done


def _password() -> str:
    """Random, and strong by our own rule: upper, lower and a digit."""
    while True:
        password = "".join(secrets.choice(LETTERS) for _ in range(LENGTH))
        if passwords.weakness(password) is None:
            return password
