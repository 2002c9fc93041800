"""Where a request comes from, as far as that can be believed."""

from __future__ import annotations

from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network

from django.conf import settings
from django.http import HttpRequest

_IPV6_NETWORK = 64  # one customer has at least so large a network, and any address in it


def of(request: HttpRequest) -> str:
    """The client's address (of IPv6 its network): of the connection, or as the proxy in front of the server says it."""
    address = str(request.META.get("REMOTE_ADDR", ""))
    if settings.BEHIND_PROXY and _is_proxy(address):  # the last one is what the proxy itself has seen
        address = request.headers.get("X-Forwarded-For", address).rpartition(",")[2].strip()
    known = _parsed(address)
    if known is None:
        return address[:100]
    if isinstance(known, IPv6Address):
        return str(ip_network((known, _IPV6_NETWORK), strict=False))
    return str(known)


def _is_proxy(address: str) -> bool:
    known = _parsed(address)
    networks = [ip_network(text, strict=False) for text in settings.TRUSTED_PROXIES]
    return known is not None and any(known in network for network in networks)


def _parsed(address: str) -> IPv4Address | IPv6Address | None:
    """A socket for both families shows IPv4 as part of IPv6."""
    try:
        known = ip_address(address)
    except ValueError:
        return None
    return known.ipv4_mapped or known if isinstance(known, IPv6Address) else known
