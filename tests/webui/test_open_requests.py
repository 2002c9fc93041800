"""What somebody may send who is not logged in, against a real web process."""

from __future__ import annotations

import json
import time
from http import HTTPStatus

import httpx
import pytest

from accounts.models import LoginToken
from tests.rig.web import Web
from tests.rig.world import make_user

pytestmark = pytest.mark.django_db(transaction=True)

LARGE = 300_000


def post(web: Web, path: str, content: bytes, token: str = "", **headers: str) -> httpx.Response:
    headers |= {"Authorization": f"Bearer {token}"} if token else {}
    headers.setdefault("Content-Type", "application/json")
    return httpx.post(f"{web.url}{path}", content=content, headers=headers, timeout=60)


@pytest.mark.parametrize(
    "path", ["/api/v1/auth/login", "/login", "/api/v1/experiments", "/api/v1/users/setting"]
)
@pytest.mark.parametrize("token", ["", "no-such-token"])
def test_without_a_login_nothing_long_is_taken(web: Web, path: str, token: str) -> None:
    begun = time.monotonic()
    answer = post(web, path, b"[" + b"[]," * (LARGE // 3) + b"[]]", token)
    assert answer.status_code == HTTPStatus.REQUEST_ENTITY_TOO_LARGE
    assert answer.json() == {
        "message": f"The request has {LARGE + 4:,} bytes; allowed without a login: at most 65,536."
    }
    assert time.monotonic() - begun < 30


def test_who_is_logged_in_sends_more_but_not_to_log_in(web: Web) -> None:
    token = LoginToken.issue(make_user("ada"))
    settings = {"settings": [{"key": f"k{number}", "value": "x" * 60_000} for number in range(5)]}
    assert (
        post(web, "/api/v1/users/setting", json.dumps(settings).encode(), token).status_code == HTTPStatus.OK
    )
    login = json.dumps({"username": "ada", "password": "x" * LARGE}).encode()
    assert post(web, "/api/v1/auth/login", login, token).status_code == HTTPStatus.REQUEST_ENTITY_TOO_LARGE


def test_a_browsers_session_is_a_login(web: Web) -> None:
    from django.test import Client

    browser = Client()
    browser.force_login(make_user("ada"), backend="django.contrib.auth.backends.ModelBackend")
    cookie = f"sessionid={browser.cookies['sessionid'].value}"
    answer = post(web, "/api/v1/users/setting", b" " * LARGE, Cookie=cookie)
    assert answer.status_code == HTTPStatus.FORBIDDEN and "CSRF" in answer.text
    assert post(web, "/api/v1/users/setting", b" " * LARGE, Cookie="sessionid=x").status_code == 413


def test_a_body_that_hides_its_length_is_cut(web: Web) -> None:
    def parts() -> object:
        for _ in range(40):
            yield b" " * 10_000

    with pytest.raises(httpx.HTTPError):
        httpx.post(f"{web.url}/api/v1/auth/login", content=parts(), timeout=20).raise_for_status()  # type: ignore[arg-type]
    assert httpx.get(f"{web.url}/health", timeout=60).status_code == HTTPStatus.OK


@pytest.mark.parametrize("body", [{"username": "x" * 151}, {"username": "ada", "password": "x" * 1025}])
def test_names_and_passwords_have_a_length(web: Web, body: dict[str, str]) -> None:
    answer = post(web, "/api/v1/auth/login", json.dumps(body).encode())
    assert answer.status_code == HTTPStatus.BAD_REQUEST and "characters" in answer.text


def test_deep_json_is_a_sentence(web: Web) -> None:
    for body in (b"[" * 20_000, b'{"a":' * 10_000 + b"1" + b"}" * 10_000):
        answer = post(web, "/api/v1/auth/login", body)
        assert answer.status_code == HTTPStatus.BAD_REQUEST and "JSON" in answer.text
