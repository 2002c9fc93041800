"""Where messages may go: names are resolved once, what they lead to is judged, and that address is dialled."""

from __future__ import annotations

import socket
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network
from urllib.parse import SplitResult, urlsplit

from django.conf import settings

from accounts.refusals import Refusal

Address = IPv4Address | IPv6Address
URL_CHARACTERS = 2000
#: a gateway makes IPv4 of the last 32 bits (RFC 6052)
_NAT64 = IPv6Network("64:ff9b::/96")
#: all IPv6 that is routed; loopback, link-local, site-local, unique local and multicast addresses are outside of it
_GLOBAL_UNICAST = IPv6Network("2000::/3")
#: What IANA's registries of special-purpose addresses set apart (RFC 6890 and its successors), whole blocks: none of it
#: is a public host. Python's own properties differ between its versions.
_SPECIAL = [
    ip_network(text)
    for text in (
        "0.0.0.0/8",  # this network
        "10.0.0.0/8",  # private
        "100.64.0.0/10",  # shared by carriers
        "127.0.0.0/8",  # loopback
        "169.254.0.0/16",  # link-local, and metadata of clouds
        "172.16.0.0/12",  # private
        "192.0.0.0/24",  # protocol assignments
        "192.0.2.0/24",  # documentation
        "192.88.99.0/24",  # 6to4 relays
        "192.168.0.0/16",  # private
        "198.18.0.0/15",  # benchmarks
        "198.51.100.0/24",  # documentation
        "203.0.113.0/24",  # documentation
        "224.0.0.0/4",  # multicast
        "240.0.0.0/4",  # reserved, broadcast
        "2001::/23",  # protocol assignments, Teredo
        "2001:db8::/32",  # documentation
        "2002::/16",  # 6to4, which may hide any IPv4
        "3fff::/20",  # documentation
    )
]


def parts_of(url: str) -> SplitResult:
    """The parts of an address that could be posted to. Raises Refusal."""
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError as error:
        raise Refusal(f"url: found {url!r}, which is not an address: {error}.") from error
    if parts.scheme not in {"http", "https"} or not parts.hostname or port == 0 or len(url) > URL_CHARACTERS:
        raise Refusal("url: allowed: an address such as https://chat.example.com/hooks/abc.")
    if parts.username or parts.password:
        raise Refusal(
            "url: a user name or password in an address is not sent; put a key in its path instead."
        )
    if any(ord(letter) < 33 or ord(letter) > 126 for letter in url):
        raise Refusal("url: found a space or a character outside ASCII; write it percent-encoded.")
    return parts


def resolve(host: str, port: int, *, trusted: bool) -> str:
    """The address to dial. Raises Refusal for one inside the server's own networks, unless `trusted`.

    Every address of the name has to be allowed: a name with a public and a private one is a trick or a mistake.
    """
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as error:
        raise Refusal(f"The name {host} cannot be resolved: {error}.") from error
    addresses = [str(entry[4][0]) for entry in found]
    for text in addresses:
        if not trusted and not _public(ip_address(text.partition("%")[0])):
            raise Refusal(
                f"{host} resolves to {text}, inside the server's own networks. Only rules of admins may use it, unless "
                "it is in TRAINMASTER_NOTIFY_PRIVATE_NETWORKS."
            )
    if not addresses:
        raise Refusal(f"The name {host} resolves to no address.")
    return addresses[0]


def _public(address: Address) -> bool:
    if isinstance(address, IPv6Address):
        inner = IPv4Address(int(address) & 0xFFFFFFFF) if address in _NAT64 else address.ipv4_mapped
        address = address if inner is None else inner
    if any(address in network for network in _allowed()):
        return True
    if isinstance(address, IPv6Address) and address not in _GLOBAL_UNICAST:
        return False
    return not any(address in network for network in _SPECIAL)


def _allowed() -> list[IPv4Network | IPv6Network]:
    return [ip_network(text, strict=False) for text in settings.NOTIFY_PRIVATE_NETWORKS]
