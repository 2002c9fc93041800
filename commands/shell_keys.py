"""The keys of a shell: derived from the server's secret and its id, so that they are stored nowhere."""

from __future__ import annotations

import hashlib
import hmac
from typing import NamedTuple

from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from django.conf import settings


class KeyPair(NamedTuple):
    """Both in OpenSSH's forms: a PEM file, and `ssh-ed25519 AAAA…`."""

    private: str
    public: str


def of_user(command_id: object) -> KeyPair:
    """Who holds it may log in to the shell."""
    return _pair("user", command_id)


def of_host(command_id: object) -> KeyPair:
    """By it the shell's sshd is known."""
    return _pair("host", command_id)


def _pair(whose: str, command_id: object) -> KeyPair:
    text = f"shell-key:{whose}:{command_id}"
    seed = hmac.new(settings.SECRET_KEY.encode(), text.encode(), hashlib.sha256).digest()
    key = Ed25519PrivateKey.from_private_bytes(seed)
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.OpenSSH, serialization.NoEncryption()
    )
    public = key.public_key().public_bytes(serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH)
    return KeyPair(private.decode(), public.decode())
