"""How runs on a host reach this server, as server.json has it."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import serialization
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
