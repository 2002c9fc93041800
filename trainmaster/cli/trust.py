"""The server's certificate: shown once, then pinned."""

from __future__ import annotations

import hashlib
import os
import ssl
from pathlib import Path
from typing import Optional
from urllib.parse import urlsplit

from trainmaster.cli.errors import CliError
from trainmaster.cli.output import ask, is_interactive, say
from trainmaster.credentials import Credentials
from trainmaster.http import ServerClient, Unreachable

_CONNECT_TIMEOUT_SECONDS = 10.0


def pinned_certificate(url: str, credentials: Credentials) -> Optional[str]:
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
