"""How runs on a host reach this server, as server.json has it."""

from __future__ import annotations

from django.conf import settings

from hosts.models import Host
from trainmaster.protocol import ServerAddress


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
    return {
        "urls": list(dict.fromkeys(url for url in urls if url)) or [local_url()],
        "cert_sha256": settings.CERT_SHA256 or None,
    }
