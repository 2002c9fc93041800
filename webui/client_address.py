"""Where a request comes from, as far as that can be believed."""

from __future__ import annotations

import ipaddress

from django.conf import settings
from django.http import HttpRequest

_IPV6_NETWORK = 64  # one customer has at least so large a network, and any address in it


def of(request: HttpRequest) -> str:
    """The client's address (of IPv6 its network): of the connection, or as the proxy in front of the server says it."""
    address = str(request.META.get("REMOTE_ADDR", ""))
    if settings.BEHIND_PROXY:  # the last one is what the proxy itself has seen
        address = request.headers.get("X-Forwarded-For", address).rpartition(",")[2].strip()
    try:
        known = ipaddress.ip_address(address)
    except ValueError:
        return address[:100]
    if known.version == 6:
        return str(ipaddress.ip_network((known, _IPV6_NETWORK), strict=False))
    return str(known)
