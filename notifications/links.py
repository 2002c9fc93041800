"""Addresses in messages; needs no models, for `up` asks whether there is one."""

from __future__ import annotations

from django.conf import settings

_NO_LINK_ADDRESS = (
    "Links in notifications are paths without a host: this server does not know the address at which users open it. "
    "Set TRAINMASTER_LINK_URL to that, such as https://trainmaster.example.org:8080, and restart the server."
)


def no_link_address() -> str:
    """Empty where the server knows the address that people open it at, else what to set."""
    return "" if settings.LINK_URL else _NO_LINK_ADDRESS


def link(path: str) -> str:
    """The page's whole address where the server knows its own, else the path."""
    return settings.LINK_URL.rstrip("/") + path
