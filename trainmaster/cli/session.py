"""A command's connection to the server: where it is, whether it is trusted, who asks."""

from __future__ import annotations

import argparse
import hashlib
import os
import ssl
import sys
from pathlib import Path
from typing import Optional
from urllib.parse import urlsplit

from trainmaster import __version__
from trainmaster.address import server_url
from trainmaster.cli.errors import CliError, without_number
from trainmaster.cli.output import ask, ask_password, is_interactive, say
from trainmaster.client import Client
from trainmaster.credentials import Credentials, salted_hash
from trainmaster.http import Answered, Later, Refused, ServerClient, Unreachable, sentence_of

#: the account that a client of Determined uses when nobody is logged in
_NOBODY = "determined"


def connect(args: argparse.Namespace) -> "tuple[Client, Credentials]":
    """A client without login. Raises CliError, UsageError."""
    url = server_url(args.master)
    credentials = Credentials(url)
    pin = _pinned_certificate(url, credentials)
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
    given = (os.environ.get("TRAINMASTER_TOKEN") or os.environ.get("DET_USER_TOKEN") or "").strip()
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
            said = str(error).rstrip(".")
            raise CliError(f"{client.url} refused the login of {user}: {said}.") from error
        raise


def _as(user: str, client: Client, credentials: Credentials) -> Client:
    if _still_valid(client, credentials, user):
        return client
    password = password_given(user)
    if password is None:
        password = _asked(client, user)
    client.token = fresh_token(client, user, password)
    credentials.remember(user, client.token, active=credentials.active_user in (None, user))
    return client


def password_given(user: str) -> Optional[str]:
    """DET_PASS, where it is this user's."""
    return os.environ.get("DET_PASS") if user == (os.environ.get("DET_USER") or user) else None


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


# --- the server's certificate: shown once, then pinned ----------------------------------------------------------

_CONNECT_TIMEOUT_SECONDS = 10.0


def _pinned_certificate(url: str, credentials: Credentials) -> Optional[str]:
    """SHA-256 of the certificate to expect at `url`, or None where authorities vouch for it (or it is plain HTTP).

    Raises CliError when the certificate is neither known nor accepted.
    """
    if urlsplit(url).scheme != "https":
        return None
    file = os.environ.get("TRAINMASTER_MASTER_CERT_FILE") or os.environ.get("DET_MASTER_CERT_FILE")
    if file:
        return _of_file(file)
    known = credentials.pin
    if known is None and _is_vouched_for(url):
        return None
    shown = _shown_by(url)
    if shown is None or shown == known:
        return known
    return _accepted(url, shown, known, credentials)


def _accepted(url: str, shown: str, known: Optional[str], credentials: Credentials) -> str:
    if known is None:
        say(
            f"{url} presents a certificate that is not signed by a trusted authority. "
            f"Its SHA-256 fingerprint is\n  {_spelled(shown)}"
        )
    else:
        say(
            f"The certificate of {url} has changed! Someone may be intercepting the connection, "
            "or the certificate was replaced.",
            "red",
        )
        say(f"  accepted before: {_spelled(known)}\n  shown now:       {_spelled(shown)}")
    if not is_interactive():
        raise CliError(
            f"the certificate of {url} is not trusted and there is no terminal to ask. "
            "Run a command in a terminal first, or set TRAINMASTER_MASTER_CERT_FILE."
        )
    if not ask("Do you trust it?", default=False):
        raise CliError("the server's certificate was not accepted.")
    credentials.remember_pin(shown)
    return shown


def _spelled(sha256: str) -> str:
    return ":".join(sha256[i : i + 2].upper() for i in range(0, len(sha256), 2))


def _is_vouched_for(url: str) -> bool:
    try:
        with ServerClient(url, timeout=_CONNECT_TIMEOUT_SECONDS) as client:
            client.get("/info")
    except Unreachable as error:
        return not isinstance(error.__cause__, ssl.SSLCertVerificationError)
    except Exception:  # it answered, so TLS was in order; what it said is for the command itself
        return True
    return True


def _shown_by(url: str) -> Optional[str]:
    """The fingerprint that the server shows now; None when it is away, which the command will say better."""
    parts = urlsplit(url)
    try:
        pem = ssl.get_server_certificate((parts.hostname or "", parts.port or 443))
    except OSError:
        return None
    return hashlib.sha256(ssl.PEM_cert_to_DER_cert(pem)).hexdigest()


def _of_file(file: str) -> str:
    try:
        pem = Path(file).read_text(encoding="ascii")
        begin = pem.index("-----BEGIN CERTIFICATE-----")
        end = pem.index("-----END CERTIFICATE-----", begin) + len("-----END CERTIFICATE-----")
        return hashlib.sha256(ssl.PEM_cert_to_DER_cert(pem[begin:end] + "\n")).hexdigest()
    except (OSError, ValueError) as error:
        raise CliError(f"the certificate file {file} cannot be used: {error}.") from error
