"""What passes of the headers between a browser and a task's program: pure functions.

The program is its user's, so nothing of the console reaches it (session, CSRF token, login token), and nothing that it
says may touch the console, with which it shares an origin (docs/interactive.md, "What a task's pages may do").
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterable, Sequence
from http.cookies import CookieError, SimpleCookie
from ipaddress import ip_address
from urllib.parse import urljoin, urlsplit

Headers = list[tuple[bytes, bytes]]

#: of one connection only (RFC 9110, 7.6.1), and what the framing of the other side decides
_OF_THE_HOP = frozenset(
    {b"connection", b"keep-alive", b"proxy-authenticate", b"proxy-authorization", b"proxy-connection", b"te",
     b"trailer", b"transfer-encoding", b"upgrade", b"expect"}
)  # fmt: skip
_NOT_FORWARDED = _OF_THE_HOP | {b"authorization", b"x-csrftoken", b"cookie", b"forwarded", b"x-real-ip"}
#: these would hold for all of the origin, or for more of it than the task's own addresses
_NOT_BELIEVED = _OF_THE_HOP | {
    b"strict-transport-security", b"service-worker-allowed", b"clear-site-data", b"alt-svc", b"public-key-pins",
    b"nel", b"report-to", b"reporting-endpoints", b"set-cookie", b"server", b"date", b"x-frame-options",
    b"refresh", b"content-location", b"set-login", b"accept-ch", b"critical-ch", b"use-as-dictionary",
    b"speculation-rules",
    # ours is added, and browsers believe the first; passwords that are asked for so never reach the program
    b"x-content-type-options", b"www-authenticate",
    # a front of this server would send a file or an internal address of its own instead of the answer
    b"x-sendfile", b"x-lighttpd-send-file", b"x-lighttpd-send-tempfile", b"x-reproxy-url", b"x-reproxy-file",
}  # fmt: skip
#: as above: nginx
_OF_A_FRONT = b"x-accel-"
_WEBSOCKET = b"sec-websocket-"
_NAME = re.compile(r"[a-z0-9_-]+(\.[a-z0-9_-]+)*\.?")


def request_headers(
    given: Iterable[tuple[bytes, bytes]], own_cookies: frozenset[str], scheme: str
) -> Headers:
    """What the program gets of a request's headers; `own_cookies` are the console's, which it does not."""
    found: Headers = []
    named = _named_by_connection(given)
    cookies: list[bytes] = []
    for name, value in given:
        lower = name.lower()
        if lower == b"cookie":
            cookies += _other_cookies(value, own_cookies)
        elif lower in _NOT_FORWARDED or lower in named or lower.startswith((_WEBSOCKET, b"x-forwarded-")):
            continue
        else:
            found.append((name, value))
    if cookies:
        found.append((b"cookie", b"; ".join(cookies)))
    found.append((b"x-forwarded-proto", scheme.encode()))
    return found


def _named_by_connection(given: Iterable[tuple[bytes, bytes]]) -> frozenset[bytes]:
    values = [value for name, value in given if name.lower() == b"connection"]
    return frozenset(word.strip().lower() for value in values for word in value.split(b","))


def _other_cookies(value: bytes, own: frozenset[str]) -> list[bytes]:
    parts = (part.strip() for part in value.split(b";"))
    return [part for part in parts if part and part.partition(b"=")[0].decode("latin-1").strip() not in own]


def answer_headers(
    given: Sequence[tuple[bytes, bytes]],
    asked: str,
    base: str,
    origin: str,
    own_cookies: frozenset[str],
    alone: bool = False,
) -> Headers:
    """What the browser gets of an answer's headers. `base` is the task's address, `/proxy/<id>/`, `asked` what the
    browser asked for."""
    named = _named_by_connection(given)
    found: Headers = []
    for name, value in given:
        lower = name.lower()
        if lower == b"location":
            host = origin.partition("://")[2]
            found.append((name, location(value.decode("latin-1"), asked, base, host).encode("latin-1")))
        elif lower == b"set-cookie":
            found += [(name, cookie) for cookie in _cookies(value, base, own_cookies)]
        elif lower not in _NOT_BELIEVED | named and not lower.startswith(_OF_A_FRONT):
            found.append((name, value))
    return [*found, *guards(base, origin, alone)]


def guards(base: str, origin: str, alone: bool = False) -> Headers:
    """What stands on every answer below `base`, the server's own too: one without it would be a way around it."""
    return [
        (b"content-security-policy", policy(base, origin, alone).encode()),
        (b"x-content-type-options", b"nosniff"),
    ]


def location(value: str, asked: str, base: str, host: str) -> str:
    """Where a redirection leads, seen from the browser: on this server never beyond the task's own addresses.

    Browsers forget the paths of a policy once a request was redirected, so a way to the console would be open else.
    `asked` is the path that the browser asked for.
    """
    try:
        parts = urlsplit(urljoin(asked, value.replace("\\", "/").strip()))
        own = urlsplit(f"//{host}").hostname or ""
    except ValueError:  # brackets that hold no IPv6 address
        return base
    if parts.netloc and not _is_here(parts.hostname or "", own):
        foreign = parts.scheme in {"", "http", "https"} and _is_plain(parts.hostname or "")
        return parts.geturl() if foreign else base
    path = "/" + posixpath.normpath(parts.path).lstrip("/") + ("/" if parts.path.endswith("/") else "")
    if not f"{path.rstrip('/')}/".startswith(base) or "%2e" in path.lower():
        path = base + ("" if "%2e" in path.lower() else path.lstrip("/"))
    query = f"?{parts.query}" if parts.query else ""
    return path + query + (f"#{parts.fragment}" if parts.fragment else "")


def _is_here(host: str, own: str) -> bool:
    """Whether a browser would take it for this server (whatever the port), or the program means itself by it."""
    return host.rstrip(".") in {own.rstrip("."), "localhost", "127.0.0.1", "task"}


def _is_plain(host: str) -> bool:
    """Whether browsers read a host just as it stands here: many ways to write this server's are left to them, such as
    percent-encoded, fullwidth or hexadecimal."""
    if ":" in host or host.rstrip(".").rpartition(".")[2][:1].isdigit():
        try:
            return str(ip_address(host)) == host
        except ValueError:
            return False
    return _NAME.fullmatch(host) is not None


def _cookies(value: bytes, base: str, own: frozenset[str]) -> list[bytes]:
    """The cookie as it may be set: for the task's addresses alone, and never one of the console's."""
    try:
        jar = SimpleCookie(value.decode("latin-1"))
    except CookieError:
        return []
    found = []
    for name, morsel in jar.items():
        if name in own or name.startswith("__Host-"):
            continue
        morsel["domain"] = ""
        if not str(morsel["path"]).startswith(base):
            morsel["path"] = base
        found.append(morsel.OutputString().encode("latin-1"))
    return found


def policy(base: str, origin: str, alone: bool = False) -> str:
    """What pages of the task may do: load, call and embed what lies below `base`, and open no window of the console.

    Where they share the console's origin, they would reach of it as whoever looks at them what they could reach. They
    may open windows where the task is `alone` on its origin: a script reads and drives any window of its own origin,
    and with it the console or another task.
    """
    own = f"{origin}{base}"
    sockets = f"ws{own.removeprefix('http')}"
    inline = "'unsafe-inline' 'unsafe-eval' data: blob:"
    windows = " allow-popups allow-popups-to-escape-sandbox" if alone else ""
    return "; ".join(
        [
            f"sandbox allow-scripts allow-same-origin allow-forms allow-downloads allow-modals{windows}",
            f"default-src {own} {inline}",
            f"connect-src {own} {sockets} data: blob:",
            f"img-src {own} data: blob: https:",
            f"form-action {own}",
            f"frame-src {own} data: blob:",
            f"worker-src {own} blob:",
            f"base-uri {own}",
            f"frame-ancestors {own}",
            "object-src 'none'",
        ]
    )
