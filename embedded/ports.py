"""The sockets that all web processes share; `up` holds them, so one may die without a refused connection."""

import errno
import ipaddress
import socket

from django.core.exceptions import ImproperlyConfigured

LOOPBACK = "127.0.0.1"
BACKLOG = 2048


def listen(address: str, port: int) -> list[socket.socket]:
    """Sockets on the address and, unless that covers it, on loopback with the same port (0: any free one)."""
    first = _bound(address, port)
    sockets = [first]
    if address != LOOPBACK and not is_any(address):
        sockets.append(_bound(LOOPBACK, first.getsockname()[1]))
    return sockets


def is_loopback(address: str) -> bool:
    try:
        return ipaddress.ip_address(address).is_loopback
    except ValueError:
        raise ImproperlyConfigured(
            f"--listen is {address!r}; allowed: an IP address of this machine, or 0.0.0.0 or :: for all addresses."
        ) from None


def is_any(address: str) -> bool:
    return ipaddress.ip_address(address).is_unspecified


def _bound(address: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    found = socket.socket(family, socket.SOCK_STREAM)
    found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    if family == socket.AF_INET6:
        found.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)  # :: takes IPv4 too
    try:
        found.bind((address, port))
    except OSError as error:
        found.close()
        raise ImproperlyConfigured(_why(address, port, error)) from error
    found.listen(BACKLOG)
    return found


def _why(address: str, port: int, error: OSError) -> str:
    if error.errno == errno.EADDRINUSE:
        return f"Port {port} on {address} is in use by another process; choose one with --port."
    if error.errno == errno.EADDRNOTAVAIL:
        return (
            f"{address} is not an address of this machine; allowed: one of its addresses, or 0.0.0.0 for all."
        )
    if error.errno == errno.EACCES:
        return f"Port {port} requires root; choose one above 1023 with --port."
    return f"Cannot listen on {address} port {port}: {error.strerror}."
