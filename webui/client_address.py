"""Where a request comes from, as far as that can be believed."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from inspect import iscoroutinefunction
from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network
from typing import Any

from django.conf import settings
from django.http import HttpRequest
from django.utils.decorators import sync_and_async_middleware

from events.origin import asked_from

_IPV6_NETWORK = 64  # one customer has at least so large a network, and any address in it


def exact(request: HttpRequest) -> str:
    """The client's address: of the connection, or as the proxy in front of the server says it."""
    address = str(request.META.get("REMOTE_ADDR", ""))
    if settings.BEHIND_PROXY and _is_proxy(address):  # the last one is what the proxy itself has seen
        address = request.headers.get("X-Forwarded-For", address).rpartition(",")[2].strip()
    return str(_parsed(address) or address)[:100]


def of(request: HttpRequest) -> str:
    """The client's address as tries are counted by it: of IPv6 its network."""
    address = exact(request)
    known = _parsed(address)
    return (
        str(ip_network((known, _IPV6_NETWORK), strict=False)) if isinstance(known, IPv6Address) else address
    )


def _is_proxy(address: str) -> bool:
    known = _parsed(address)
    networks = [ip_network(text, strict=False) for text in settings.TRUSTED_PROXIES]
    return known is not None and any(known in network for network in networks)


@lru_cache(maxsize=10_000)
def _parsed(address: str) -> IPv4Address | IPv6Address | None:
    """A socket for both families shows IPv4 as part of IPv6; of a local address the interface does not matter."""
    try:
        known = ip_address(address.partition("%")[0])
    except ValueError:
        return None
    return known.ipv4_mapped or known if isinstance(known, IPv6Address) else known


@sync_and_async_middleware
def kept_for_events(get_response: Callable[[HttpRequest], Any]) -> Callable[[HttpRequest], Any]:
    """Whatever a request changes says from where it was asked for (`events.origin`)."""
    if iscoroutinefunction(get_response):

        async def answered(request: HttpRequest) -> Any:
            with asked_from(exact(request)):
                return await get_response(request)

        return answered

    def answered_here(request: HttpRequest) -> Any:
        with asked_from(exact(request)):
            return get_response(request)

    return answered_here
