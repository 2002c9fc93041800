"""What passes between a browser and a task's program, and what the task's pages may do on the console's origin."""

from __future__ import annotations

import pytest

from webui.proxy.headers import answer_headers, location, policy, request_headers

OWN = frozenset({"sessionid", "csrftoken"})
BASE, ORIGIN = "/proxy/ab12/", "https://console:8443"


def test_nothing_of_the_console_reaches_the_program() -> None:
    given = [
        (b"Host", b"console:8443"), (b"Cookie", b"sessionid=s; _xsrf=2; csrftoken=c"), (b"Authorization", b"Bearer t"),
        (b"X-CSRFToken", b"c"), (b"Connection", b"keep-alive, X-Hop"), (b"X-Hop", b"1"), (b"Keep-Alive", b"5"),
        (b"X-Forwarded-For", b"1.2.3.4"), (b"Transfer-Encoding", b"chunked"), (b"X-XSRFToken", b"2"),
    ]  # fmt: skip
    assert dict(request_headers(given, OWN, "https")) == {
        b"Host": b"console:8443", b"X-XSRFToken": b"2", b"cookie": b"_xsrf=2", b"x-forwarded-proto": b"https",
    }  # fmt: skip


def test_nothing_that_the_program_says_touches_the_console() -> None:
    given = [
        (b"Content-Type", b"text/html"), (b"Set-Cookie", b"sessionid=mine; Path=/"), (b"Clear-Site-Data", b'"*"'),
        (b"Set-Cookie", b"_xsrf=2; Path=/; Domain=console; HttpOnly"), (b"Service-Worker-Allowed", b"/"),
        (b"Strict-Transport-Security", b"max-age=1"), (b"Location", b"/api/v1/me"), (b"Refresh", b"0; url=/"),
        (b"X-Accel-Redirect", b"/internal"), (b"X-Sendfile", b"/etc/passwd"), (b"Set-Login", b"logged-out"),
        (b"X-Content-Type-Options", b"none"), (b"WWW-Authenticate", b"Basic realm=Trainmaster"),
    ]  # fmt: skip
    found = answer_headers(given, f"{BASE}x", BASE, ORIGIN, OWN)
    names = [name.lower() for name, _ in found]
    assert names == [
        b"content-type", b"set-cookie", b"location", b"content-security-policy", b"x-content-type-options",
    ]  # fmt: skip
    cookie = dict(found)[b"Set-Cookie"]
    assert cookie.startswith(b"_xsrf=2") and b"Path=/proxy/ab12/" in cookie and b"omain" not in cookie
    assert b"HttpOnly" in cookie


@pytest.mark.parametrize(
    ("said", "leads"),
    [
        ("/proxy/ab12/lab?a=1#b", "/proxy/ab12/lab?a=1#b"),
        ("lab/", "/proxy/ab12/lab/"),
        ("/there", "/proxy/ab12/there"),
        ("/api/v1/me", "/proxy/ab12/api/v1/me"),
        ("../../api/v1/me", "/proxy/ab12/api/v1/me"),
        ("/proxy/ab12/../../api/v1/me", "/proxy/ab12/api/v1/me"),
        ("/proxy/ab12/%2e%2e/%2E%2e/api/v1/me", "/proxy/ab12/"),
        ("https://console:8443/experiments", "/proxy/ab12/experiments"),
        ("\\\\console:8443\\experiments", "/proxy/ab12/experiments"),
        ("//console:8443/", "/proxy/ab12/"),
        ("http://localhost:8888/tree", "/proxy/ab12/tree"),
        ("https://CONSOLE:8443/api/v1/me", "/proxy/ab12/api/v1/me"),
        ("https://me@console:8443/api/v1/me", "/proxy/ab12/api/v1/me"),
        ("https://console/api/v1/me", "/proxy/ab12/api/v1/me"),
        ("https://console.:8443/api/v1/me", "/proxy/ab12/api/v1/me"),
        ("https://c%6Fnsole:8443/api/v1/me", "/proxy/ab12/"),
        ("https://\uff43onsole:8443/api/v1/me", "/proxy/ab12/"),
        ("https://0x7f000001:8443/api/v1/me", "/proxy/ab12/"),
        ("https://127.1:8443/api/v1/me", "/proxy/ab12/"),
        ("https://[::ffff:0a00:0005]:8443/", "/proxy/ab12/"),
        ("https://[bad/x", "/proxy/ab12/"),
        ("https://10.0.0.9/x", "https://10.0.0.9/x"),
        ("https://example.org/x", "https://example.org/x"),
        ("javascript:alert(1)", "/proxy/ab12/alert(1)"),
    ],
)
def test_a_redirection_never_leads_into_the_console(said: str, leads: str) -> None:
    assert location(said, f"{BASE}page", BASE, "console:8443") == leads


def test_pages_of_a_task_may_call_load_and_embed_their_own_addresses_alone() -> None:
    rules = dict(each.split(" ", 1) for each in policy(BASE, ORIGIN).split("; "))
    assert rules["connect-src"].split()[:2] == [f"{ORIGIN}{BASE}", f"wss://console:8443{BASE}"]
    assert "allow-popups" not in rules["sandbox"] and "allow-top-navigation" not in rules["sandbox"]
    assert "allow-popups" in policy(BASE, "https://ab12.tasks:8443", alone=True)
    for name in ("default-src", "form-action", "frame-src", "worker-src", "base-uri", "frame-ancestors"):
        assert f"{ORIGIN}{BASE}" in rules[name] and "'self'" not in rules[name] and "*" not in rules[name]
