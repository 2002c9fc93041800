"""Who opens a socket or a stream: a login token in the Authorization header, or the console's session."""

from __future__ import annotations

from collections.abc import Mapping
from http.cookies import CookieError, SimpleCookie
from importlib import import_module
from urllib.parse import urlsplit

from django.conf import settings
from django.contrib import auth
from django.http import HttpRequest

from accounts.models import LoginToken, User

_SCHEME = "bearer "


def user_of(headers: dict[str, str]) -> User | None:
    """The active user that these headers (names in lower case) prove, or None. Reads the database."""
    if has_token(headers):
        return LoginToken.find_user(headers["authorization"][len(_SCHEME) :].strip())
    return user_of_session(session_key(headers))


def has_token(headers: dict[str, str]) -> bool:
    """Whether a program sent them, by a login token of its own: no page makes a browser send one."""
    return headers.get("authorization", "").lower().startswith(_SCHEME)


def session_key(headers: dict[str, str]) -> str:
    """Return the key of the console's session; empty without one."""
    return cookie(headers, settings.SESSION_COOKIE_NAME)


def cookie(headers: Mapping[str, str], name: str) -> str:
    """Return the value of a cookie; empty without one."""
    try:
        morsel = SimpleCookie(headers.get("cookie", "")).get(name)
    except CookieError:
        return ""
    return morsel.value if morsel else ""


def user_of_session(key: str) -> User | None:
    """The active user who is logged in to the console by this session, or None. Reads the database."""
    if not key:
        return None
    request = HttpRequest()
    request.session = import_module(settings.SESSION_ENGINE).SessionStore(key)
    user = auth.get_user(request)
    return user if isinstance(user, User) and user.is_active else None


def is_own_origin(headers: dict[str, str]) -> bool:
    """False when a page of another site opened the socket, which would use the visitor's cookie.

    Programs send no Origin; a browser always does, and its value must be this server's own address or one of
    CSRF_TRUSTED_ORIGINS.
    """
    origin = headers.get("origin")
    if origin is None or has_token(headers):
        return True  # of another scheme it is no login here, and the cookie would count
    if origin in settings.CSRF_TRUSTED_ORIGINS:
        return True
    parts = urlsplit(origin)
    return parts.scheme in {"http", "https"} and bool(parts.netloc) and parts.netloc == headers.get("host")
