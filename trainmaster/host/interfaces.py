"""The addresses of this host, by interface, as the kernel tells them."""

from __future__ import annotations

import fcntl
import ipaddress
import socket
import struct
from pathlib import Path
from typing import Any, Dict, List, Optional

_SIOCGIFADDR, _SIOCGIFNETMASK = 0x8915, 0x891B  # linux/sockios.h
_GLOBAL_SCOPE = "00"
_IPV6 = Path("/proc/net/if_inet6")


def interfaces() -> List[Dict[str, Any]]:
    """[{"interface", "address", "prefix", "speed_mbit"}] without loopback and link-local addresses.

    The first IPv4 address and all IPv6 addresses of each interface. `speed_mbit` is null where the driver tells none.
    """
    found = []
    for _, name in socket.if_nameindex():
        address = _ipv4(name, _SIOCGIFADDR)
        mask = _ipv4(name, _SIOCGIFNETMASK)
        if address and mask:
            found.append(_row(name, address, ipaddress.ip_network(f"0.0.0.0/{mask}").prefixlen))
    found += _ipv6_rows(_IPV6.read_text() if _IPV6.exists() else "")
    return [row for row in found if _is_dialled(row["address"])]


def _is_dialled(text: str) -> bool:
    address = ipaddress.ip_address(text)
    return not (address.is_loopback or address.is_link_local or address.is_unspecified)


def _row(name: str, address: str, prefix: int) -> Dict[str, Any]:
    return {"interface": name, "address": address, "prefix": prefix, "speed_mbit": _speed(name)}


def _ipv4(name: str, question: int) -> Optional[str]:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asking:
        try:
            answer = fcntl.ioctl(asking.fileno(), question, struct.pack("256s", name.encode()[:15]))
        except OSError:  # it has none
            return None
    return socket.inet_ntoa(answer[20:24])


def _ipv6_rows(table: str) -> List[Dict[str, Any]]:
    """Parse a text like /proc/net/if_inet6: address, index, prefix, scope, flags (hexadecimal), name."""
    rows = []
    for line in table.splitlines():
        address, _, prefix, scope, _, name = line.split()
        if scope == _GLOBAL_SCOPE:
            rows.append(_row(name, str(ipaddress.IPv6Address(int(address, 16))), int(prefix, 16)))
    return rows


def _speed(name: str) -> Optional[int]:
    try:
        speed = int(Path("/sys/class/net", name, "speed").read_text())
    except (OSError, ValueError):
        return None
    return speed if speed > 0 else None
