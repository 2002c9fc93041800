"""Secrets of receivers: encrypted with a key made of the server's secret, and shown to nobody again."""

from __future__ import annotations

import base64
import hashlib
from urllib.parse import urlsplit

from cryptography.fernet import Fernet, InvalidToken
from django.conf import settings


class Unreadable(Exception):
    """The message is a sentence."""


def _cipher() -> Fernet:
    key = hashlib.sha256(b"trainmaster notifications:" + settings.SECRET_KEY.encode()).digest()
    return Fernet(base64.urlsafe_b64encode(key))


def seal(text: str) -> str:
    return _cipher().encrypt(text.encode()).decode() if text else ""


def opened(sealed: str) -> str:
    """Raises Unreadable where the server's secret is another than it was."""
    if not sealed:
        return ""
    try:
        return _cipher().decrypt(sealed.encode()).decode()
    except InvalidToken as error:
        raise Unreadable(
            "The server's secret key has changed since the receiver was saved; enter its address again."
        ) from error


def masked_url(url: str) -> str:
    """`https://hooks.slack.com/…9xZ1`: where it leads, without the key that many carry."""
    parts = urlsplit(url)
    rest = url.partition("://")[2].partition("/")[2]
    host = parts.hostname or ""
    port = f":{parts.port}" if parts.port else ""
    shown = f"[{host}]" if ":" in host else host
    return f"{parts.scheme}://{shown}{port}/" + (f"…{rest[-4:]}" if len(rest) > 8 else "…" if rest else "")
