"""From where a change was asked for: an address while a request is answered; empty for what the server does itself."""

from __future__ import annotations

from contextvars import ContextVar

_address: ContextVar[str] = ContextVar("address of whoever is asking", default="")


def asked_from(address: str) -> None:
    """From now on in this context, and in the threads that answer for it."""
    _address.set(address)


def address() -> str:
    return _address.get()
