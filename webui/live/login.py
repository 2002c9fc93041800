"""Who opens a socket or a stream: a login token in the Authorization header, or the console's session."""

from __future__ import annotations

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
    authorization = headers.get("authorization", "")
    if authorization.lower().startswith(_SCHEME):
        return LoginToken.find_user(authorization[len(_SCHEME) :].strip())
    return _user_of_session(headers)


def _user_of_session(headers: dict[str, str]) -> User | None:
    try:
        morsel = SimpleCookie(headers.get("cookie", "")).get(settings.SESSION_COOKIE_NAME)
    except CookieError:
        return None
    if morsel is None:
        return None
    request = HttpRequest()
    request.session = import_module(settings.SESSION_ENGINE).SessionStore(morsel.value)
    user = auth.get_user(request)
    return user if isinstance(user, User) and user.is_active else None


def is_own_origin(headers: dict[str, str]) -> bool:
    """False when a page of another site opened the socket, which would use the visitor's cookie.

    Programs send no Origin; a browser always does, and its value must be this server's own address or one of
    CSRF_TRUSTED_ORIGINS.
    """
    origin = headers.get("origin")
    if origin is None or headers.get("authorization", "").lower().startswith(_SCHEME):
        return True  # of another scheme it is no login here, and the cookie would count
    if origin in settings.CSRF_TRUSTED_ORIGINS:
        return True
    parts = urlsplit(origin)
    return parts.scheme in {"http", "https"} and bool(parts.netloc) and parts.netloc == headers.get("host")
