"""How a host reaches the server: the configured URL, the address that it sees, or a tunnel through SSH.

Each is tried from the host by the verb `check`: only this very server can answer the nonce. What runs on the host are
told of it is `server_address`, as server.json has it.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import secrets
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from urllib.parse import urlsplit

from cryptography import x509
from cryptography.hazmat.primitives import serialization
from django.conf import settings

from accounts.models import Cluster
from dispatch.ssh import remote
from hosts.models import Host
from hosts.slurm_pool import tunnel_address
from trainmaster.protocol import ServerAddress


@dataclass(frozen=True)
class Route:
    """`kind` is `url`, `seen` or `tunnel` (Host.server_route)."""

    kind: str
    url: str
    sentence: str


@dataclass(frozen=True)
class NoRoute:
    """Nothing answered; the sentence says what was tried."""

    sentence: str


def find(host: Host) -> Route | NoRoute:
    """The first direct way that answers. Raises RemoteError if the host itself does not.

    None is tried for the nodes of a cluster whose pool says that they need a tunnel: nobody asks them.
    """
    if address := tunnel_address(host):
        return NoRoute(f"Nodes reach the server by the login node, at {address}, as the setting tunnel says.")
    candidates = _candidates(host)
    if not candidates:
        return NoRoute("The server listens only on its own machine.")
    answers = _ask(host, [url for _, url in candidates])
    for kind, url in candidates:
        if answers[url] == "":
            return Route(kind, url, f"Runs there reach the server at {url}.")
    tried = "; ".join(f"{url}: {answers[url]}" for _, url in candidates)
    return NoRoute(f"The host cannot reach the server ({tried}).")


def answers_at(host: Host, url: str) -> str:
    """Empty if this very server answers the host at `url`, else why not."""
    return _ask(host, [url])[url]


def _candidates(host: Host) -> list[tuple[str, str]]:
    if host.transport == Host.Transport.LOCAL:
        return [("url", local_url())]
    found = [("url", settings.SERVER_URL.rstrip("/"))] if settings.SERVER_URL else []
    seen = (host.facts.get("ssh_connection") or {}).get("client", "")
    if seen:
        here = urlsplit(local_url())
        address = f"[{seen}]" if ":" in seen else seen
        found.append(("seen", f"{here.scheme}://{address}:{here.port}"))
    return list({url: (kind, url) for kind, url in reversed(found)}.values())[::-1]


def _ask(host: Host, urls: list[str]) -> dict[str, str]:
    nonce = secrets.token_hex(16)
    payload = {"urls": urls, "nonce": nonce, "connect": [], "cert_sha256": settings.CERT_SHA256 or None}
    answers = remote.verb(host, "check", payload)["urls"]
    return {answer["url"]: _judge(answer, nonce) for answer in answers}


def _judge(answer: dict[str, object], nonce: str) -> str:
    """Empty for the right answer to the nonce."""
    if not answer.get("ok"):
        return str(answer.get("error") or "no answer").rstrip(".")
    expected = hmac.new(Cluster.get().nonce_key.encode(), nonce.encode(), hashlib.sha256).hexdigest()
    try:
        given = str(json.loads(str(answer.get("answer")))["hmac"])
    except (ValueError, KeyError, TypeError):
        return "something other than a Trainmaster server answers there"
    if not hmac.compare_digest(given, expected):
        return "another Trainmaster server answers there"
    return ""


def local_url() -> str:
    """Where the web process listens, seen from this machine."""
    scheme = "https" if settings.CERT_SHA256 or settings.TLS else "http"
    address = settings.LISTEN_ADDRESS
    if address in {"0.0.0.0", "::", ""}:
        address = "127.0.0.1"
    return f"{scheme}://{address}:{settings.LISTEN_PORT}"


def server_address(host: Host) -> ServerAddress:
    """URLs to try in turn (the one that the doctor found first), and the certificate to pin."""
    urls = [host.server_url, settings.SERVER_URL]
    if host.transport == Host.Transport.LOCAL:
        urls.insert(0, local_url())
    address: ServerAddress = {
        "urls": list(dict.fromkeys(url for url in urls if url)) or [local_url()],
        "cert_sha256": settings.CERT_SHA256 or None,
    }
    if settings.CERT_FILE:
        address["cert_pem"], address["cert_name"] = _certificate(settings.CERT_FILE)
    return address


@lru_cache(maxsize=1)
def _certificate(path: str) -> tuple[str, str]:
    """(PEM of the certificate and its chain, a name that it is valid for). A key in the same file stays there."""
    chain = x509.load_pem_x509_certificates(Path(path).read_bytes())
    pem = "".join(one.public_bytes(serialization.Encoding.PEM).decode("ascii") for one in chain)
    try:
        names = chain[0].extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound:
        return pem, ""
    return pem, next(iter(names.get_values_for_type(x509.DNSName)), "")
