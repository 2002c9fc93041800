"""How a host reaches the server: the configured URL, the address that it sees, or a tunnel through SSH.

Each is tried from the host by the verb `check`: only this very server can answer the nonce.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import secrets
from dataclasses import dataclass
from urllib.parse import urlsplit

from django.conf import settings

from accounts.models import Cluster
from dispatch.ssh import remote
from dispatch.ssh.addresses import local_url
from hosts.models import Host


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
    """The first direct way that answers. Raises RemoteError if the host itself does not."""
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
