"""A command's connection to the server: where it is, whether it is trusted, who asks."""

from __future__ import annotations

import argparse
import os
import sys
from typing import Optional

from trainmaster import __version__
from trainmaster.address import server_url
from trainmaster.cli.errors import CliError
from trainmaster.cli.output import ask_password, say
from trainmaster.cli.sentences import without_number
from trainmaster.cli.trust import pinned_certificate
from trainmaster.client import Client
from trainmaster.credentials import Credentials, salted_hash
from trainmaster.http import Answered, Later, Refused, sentence_of

#: the account that a client of Determined uses when nobody is logged in
_NOBODY = "determined"


def connect(args: argparse.Namespace) -> "tuple[Client, Credentials]":
    """A client without login. Raises CliError, UsageError."""
    url = server_url(args.master)
    credentials = Credentials(url)
    pin = pinned_certificate(url, credentials)
    client = Client(url, cert_sha256=pin, notify=lambda sentence: say(without_number(sentence), "yellow"))
    _compare_versions(client)
    return client, credentials


def _compare_versions(client: Client) -> None:
    try:
        found = client.info()
    except (TypeError, ValueError, Answered) as error:
        if isinstance(error, Later) or (isinstance(error, Answered) and sentence_of(error.body)):
            raise
        raise CliError(
            f"{client.url} is not a Trainmaster server; set the address of yours with -m or TRAINMASTER_MASTER."
        ) from error
    theirs = found.get("version")
    if theirs and theirs != __version__:
        say(f"This command has version {__version__}, but the server at {client.url} has {theirs}.", "yellow")


def log_in(args: argparse.Namespace) -> Client:
    """A client that is logged in: as the user named, by DET_USER and DET_PASS, or as whoever logged in before."""
    client, credentials = connect(args)
    given = os.environ.get("TRAINMASTER_TOKEN") or os.environ.get("DET_USER_TOKEN")
    user = args.user or os.environ.get("DET_USER")
    if given and not args.user:
        client.token = given
        return client
    if user:
        return _as(user, client, credentials)
    active = credentials.active_user
    if active and _still_valid(client, credentials, active):
        return client
    return _as(active, client, credentials) if active else _as_nobody(client)


def fresh_token(client: Client, user: str, password: str) -> str:
    """Log in. Raises CliError when name and password do not belong together."""
    try:
        return client.login(user, salted_hash(password))
    except Answered as error:
        if error.status in (401, 403):
            raise CliError(
                f"{client.url} refused the login of {user}: {error}. Check the name and the password."
            ) from error
        raise


def _as(user: str, client: Client, credentials: Credentials) -> Client:
    if _still_valid(client, credentials, user):
        return client
    password = os.environ.get("DET_PASS") if user == (os.environ.get("DET_USER") or user) else None
    if password is None:
        password = _asked(client, user)
    client.token = fresh_token(client, user, password)
    credentials.remember(user, client.token, active=credentials.active_user in (None, user))
    return client


def _asked(client: Client, user: str) -> str:
    if not sys.stdin.isatty():
        raise CliError(
            f"{user} is not logged in at {client.url}, or the login has expired. "
            f"Run `trainmaster user login {user}`, or set DET_USER and DET_PASS."
        )
    return ask_password(f"Password for {user} at {client.url}: ")


def _still_valid(client: Client, credentials: Credentials, user: str) -> bool:
    client.token = credentials.token(user) or None
    if client.token is None:
        return False
    try:
        client.me()
    except Refused:
        client.token = None
        credentials.forget(user)
        return False
    return True


def _as_nobody(client: Client) -> Client:
    try:
        client.token = client.login(_NOBODY, "")
    except Answered as error:
        if error.status in (400, 401, 403):
            raise CliError(
                f"you are not logged in at {client.url}; run `trainmaster user login NAME` first."
            ) from error
        raise
    return client


def explicit_user(args: argparse.Namespace, named: Optional[str]) -> str:
    """The user that a login is for: the argument, -u, DET_USER, or the one asked for."""
    found = named or args.user or os.environ.get("DET_USER")
    if not found:
        raise CliError("no user name given; run: trainmaster user login NAME")
    return str(found)
