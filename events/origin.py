"""From where a change was asked for: an address while a request is answered; empty for what the server does itself."""

from __future__ import annotations

import getpass
import os
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

#: of commands of manage.py
HERE = "the server's machine"

_address: ContextVar[str] = ContextVar("address of whoever is asking", default="")


@contextmanager
def asked_from(address: str) -> Iterator[None]:
    """Events that are written within this block, and in threads to which its context is passed on, have the address."""
    token = _address.set(address)
    try:
        yield
    finally:
        _address.reset(token)


def address() -> str:
    """The address of whoever is asking."""
    return _address.get()


def account() -> str:
    """Return the actor of commands that are run on the server's machine: their Unix account."""
    try:
        return f"account:{getpass.getuser()}"
    except (KeyError, OSError):  # a container's user without a name
        return f"account:{os.getuid()}"
