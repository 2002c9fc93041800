"""Typed reading of environment variables: a wrong value stops the start with a sentence."""

import os
import re
from ipaddress import ip_network
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, unquote, urlsplit

from django.core.exceptions import ImproperlyConfigured

from trainmaster.address import is_http_url


def text(name: str, default: str = "") -> str:
    """The variable, or the content of the file that NAME_FILE points at (for secrets)."""
    if file := os.environ.get(f"{name}_FILE"):
        return Path(file).read_text().strip()
    return os.environ.get(name, default)


def boolean(name: str, default: bool) -> bool:
    value = os.environ.get(name)
    if value is None:
        return default
    if value.lower() in {"1", "true", "yes"}:
        return True
    if value.lower() in {"0", "false", "no"}:
        return False
    raise ImproperlyConfigured(f"{name} is {value!r}; allowed: true or false.")


def number(name: str, default: float) -> float:
    value = os.environ.get(name)
    if value is None:
        return default
    try:
        return float(value)
    except ValueError as error:
        raise ImproperlyConfigured(f"{name} is {value!r}; allowed: a number.") from error


def http_url(name: str) -> str | None:
    """None where it is not set."""
    value = text(name)
    return _checked_url(name, value) if value else None


def http_urls(name: str) -> list[str]:
    """A list of addresses separated by commas."""
    return [_checked_url(name, word) for word in words(name)]


def _checked_url(name: str, value: str) -> str:
    if not is_http_url(value):
        raise ImproperlyConfigured(
            f"{name} is {value!r}; allowed: an address, such as https://s3.example.com:9000."
        )
    return value


def origin(name: str) -> str:
    """`https://tasks.example.com`, or one for each task: `https://*.tasks.example.com`; empty where it is not set."""
    return read_origin(name, text(name))


def read_origin(name: str, given: str) -> str:
    """As `origin`, of what was `given` by an option of this `name`."""
    value = given.rstrip("/").lower()
    if not value:
        return ""
    parts = urlsplit(value)
    host = parts.netloc.removeprefix("*.")
    if parts.scheme not in {"http", "https"} or not re.fullmatch(
        r"[a-z0-9.-]+(:\d+)?|\[[0-9a-f:]+\](:\d+)?", host
    ):
        raise ImproperlyConfigured(
            f"{name} is {value!r}; allowed: an origin such as https://tasks.example.com:8443, "
            "or https://*.tasks.example.com for one per task."
        )
    if parts.path or parts.query or parts.fragment:
        raise ImproperlyConfigured(f"{name} is {value!r}; allowed: only scheme, host name and port.")
    return value.removesuffix(":443" if parts.scheme == "https" else ":80")


def one_of(name: str, default: str, allowed: list[str]) -> str:
    value = text(name, default)
    if value not in allowed:
        raise ImproperlyConfigured(f"{name} is {value!r}; allowed: {', '.join(allowed)}.")
    return value


def words(name: str, default: str = "") -> list[str]:
    """A list separated by commas."""
    return [word.strip() for word in text(name, default).split(",") if word.strip()]


def networks(name: str) -> list[str]:
    """A list of networks, such as 10.0.0.0/8."""
    found = words(name)
    for word in found:
        try:
            ip_network(word, strict=False)
        except ValueError as error:
            raise ImproperlyConfigured(
                f"{name} has {word!r}; allowed: networks such as 10.0.0.0/8, separated by commas."
            ) from error
    return found


def database(url: str) -> dict[str, Any]:
    """Django's DATABASES entry for `postgresql://user:password@host:port/name?option=value`.

    A host that starts with / (percent-encoded or as `?host=/folder`) is a Unix socket's folder.
    """
    parts = urlsplit(url)
    if parts.scheme not in {"postgres", "postgresql"}:
        raise ImproperlyConfigured(
            f"DATABASE_URL has the scheme {parts.scheme!r}; allowed: postgresql://. Trainmaster needs PostgreSQL."
        )
    options = dict(parse_qsl(parts.query))
    host = options.pop("host", None) or unquote(parts.hostname or "")
    return {
        "ENGINE": "django.db.backends.postgresql",
        "NAME": parts.path.lstrip("/") or "trainmaster",
        "USER": unquote(parts.username or ""),
        "PASSWORD": unquote(parts.password or ""),
        "HOST": host,
        "PORT": str(parts.port or options.pop("port", "")),
        "OPTIONS": options,
    }


def bounded(
    options: dict[str, Any], *, silent_seconds: float, idle_transaction_seconds: float
) -> dict[str, Any]:
    """Options of a PostgreSQL connection that neither end waits on for ever; what `options` has itself stays.

    Both ends give up the other after `silent_seconds`, and the server ends a transaction in which nothing was asked
    for `idle_transaction_seconds`. With 0 of these nothing is asked of the server, as some poolers demand.
    """
    between = max(1, round(silent_seconds / 4))
    silent_ms = round(silent_seconds * 1000)
    ours: dict[str, Any] = {
        "connect_timeout": max(2, round(silent_seconds)),
        "keepalives_idle": between,
        "keepalives_interval": between,
        "keepalives_count": 3,
        "tcp_user_timeout": silent_ms,
    }
    if idle_transaction_seconds > 0:
        asked = {
            "idle_in_transaction_session_timeout": round(idle_transaction_seconds * 1000),
            "tcp_keepalives_idle": between,
            "tcp_keepalives_interval": between,
            "tcp_keepalives_count": 3,
            "tcp_user_timeout": silent_ms,
        }
        words = [f"-c {name}={value}" for name, value in asked.items()]
        ours["options"] = " ".join([*words, options.get("options", "")]).strip()
    return {**options, **ours, **{name: options[name] for name in options if name != "options"}}
