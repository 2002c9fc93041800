"""Where the server is, from what people write."""

from __future__ import annotations

import os
from typing import Optional
from urllib.parse import urlsplit

DEFAULT = "http://localhost:8080"
_PORTS = {"http": 80, "https": 443}


class BadAddress(ValueError):
    """What was written is no address of a server; the message is a sentence."""


def server_url(option: Optional[str]) -> str:
    """The server's URL: the option, TRAINMASTER_MASTER, DET_MASTER, or the default. Raises BadAddress."""
    found = option or os.environ.get("TRAINMASTER_MASTER") or os.environ.get("DET_MASTER") or DEFAULT
    return canonical(found)


def canonical(address: str) -> str:
    """`gpu-server` → http://gpu-server:8080; with a scheme its usual port. Raises BadAddress."""
    bare = "://" not in address
    try:
        parts = urlsplit(f"http://{address}" if bare else address)
        port = parts.port
    except ValueError as error:
        raise BadAddress(f"The server address {address!r} is not an address: {error}.") from None
    if parts.scheme not in _PORTS or not parts.hostname:
        raise BadAddress(
            f"The server address {address!r} is not host[:port], http://host[:port] or https://host[:port]."
        )
    if parts.username or parts.password or parts.query or parts.fragment:
        raise BadAddress("The server address may not contain a user, a password, a query or a fragment.")
    host = f"[{parts.hostname}]" if ":" in parts.hostname else parts.hostname
    number = port or (8080 if bare else _PORTS[parts.scheme])
    return f"{parts.scheme}://{host}:{number}{parts.path.rstrip('/')}"


def is_http_url(text: str) -> bool:
    """Whether it is http://host or https://host, with a port that exists where it names one."""
    try:
        parts = urlsplit(text)
        return parts.scheme in _PORTS and bool(parts.hostname) and parts.port != 0
    except ValueError:  # of a port, or of brackets
        return False
