"""Passwords in Determined's dialect: clients send a salted SHA-512, and the server hashes that once more."""

from __future__ import annotations

import hashlib
import re
import secrets
import string

from accounts.models import User

#: The salt that every published client uses (features.md 11.2); it is public, the real hashing is Django's.
CLIENT_SALT = "GubPEmmotfiK9TMD6Zdw"


def client_hash(password: str) -> str:
    """What a client sends with isHashed: hex SHA-512 of salt and password; an empty password stays empty."""
    if not password:
        return ""
    return _salted(password)


def _salted(password: str) -> str:
    return hashlib.sha512((CLIENT_SALT + password).encode()).hexdigest()


#: what is tried first by anyone who guesses
_WORST = ("", "password", "determined", "admin", "12345678", "trainmaster", "changeme")


#: far above any password and its hash; what is longer is not hashed at all
PASSWORD_CHARACTERS = 1024
_HASH = re.compile(r"[0-9a-f]{128}")


def hash_fault(hashed: str) -> str | None:
    """A sentence about what cannot be a client's hash of a password, or None. A real one tells nothing of strength."""
    if not _HASH.fullmatch(hashed):
        return "password: with isHashed, it must be the salted SHA-512 of the password, as 128 hexadecimal digits."
    if any(hashed == _salted(each) for each in _WORST):
        return f"The password is weak: it must not be empty or one of {', '.join(filter(None, _WORST))}."
    return None


def set_password(user: User, password: str, *, is_hashed: bool) -> None:
    user.set_password(password if is_hashed else client_hash(password))


def check_password(user: User, password: str, *, is_hashed: bool) -> bool:
    return user.check_password(password if is_hashed else client_hash(password))


def weakness(password: str) -> str | None:
    """A sentence about what is missing, or None (features.md 12.2: 8 characters, upper, lower, digit)."""
    missing = [
        what
        for what, there in [
            ("8 characters", len(password) >= 8),
            ("an upper-case letter", any(c.isupper() for c in password)),
            ("a lower-case letter", any(c.islower() for c in password)),
            ("a digit", any(c.isdigit() for c in password)),
        ]
        if not there
    ]
    return f"The password is weak: it needs {', '.join(missing)}." if missing else None


_LETTERS = string.ascii_letters + string.digits
_GENERATED_CHARACTERS = 20


def generated() -> str:
    """A random password that is strong by our own rule: upper, lower and a digit."""
    while True:
        password = "".join(secrets.choice(_LETTERS) for _ in range(_GENERATED_CHARACTERS))
        if weakness(password) is None:
            return password
