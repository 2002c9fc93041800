"""Wrong passwords are bounded, for the page and for the dialect alike, and nobody is locked out from elsewhere."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
import redis
from django.test import Client

from accounts import logins
from accounts.models import User
from accounts.passwords import set_password
from accounts.refusals import Refusal
from tests.rig.world import make_user

pytestmark = pytest.mark.django_db
HERE, THERE = "192.0.2.7", "198.51.100.9"


@pytest.fixture(autouse=True)
def few_tries(redis_server: object, settings: Any) -> Iterator[None]:
    settings.LOGIN_ATTEMPTS, settings.LOGIN_ATTEMPTS_PER_ADDRESS = 3, 8
    redis.Redis.from_url(settings.REDIS_URL).flushdb()
    yield


@pytest.fixture
def user() -> User:
    user = make_user("guessed")
    set_password(user, "Right1234", is_hashed=False)
    user.save()
    return user


def login(password: str, address: str = HERE, username: str = "guessed") -> tuple[int, str]:
    body = {"username": username, "password": password, "isHashed": False}
    answer = Client(REMOTE_ADDR=address).post(
        "/api/v1/auth/login", json.dumps(body), content_type="application/json"
    )
    return answer.status_code, answer.content.decode()


def page(password: str, address: str = HERE) -> tuple[int, str]:
    answer = Client(REMOTE_ADDR=address).post("/login", {"username": "guessed", "password": password})
    return answer.status_code, answer.content.decode()


def test_after_many_wrong_passwords_even_the_right_one_has_to_wait(user: User) -> None:
    assert [login("wrong")[0] for _ in range(3)] == [401] * 3
    status, said = login("Right1234")
    assert status == 403 and "3 wrong passwords for guessed from this address within 60 s" in said
    status, said = page("Right1234")
    assert status == 403 and "Wait a moment" in said


def test_who_guesses_elsewhere_locks_nobody_out(user: User) -> None:
    for _ in range(5):
        login("wrong", THERE)
    assert "Wait a moment" in login("wrong", THERE)[1]
    assert login("Right1234", HERE)[0] == 200 and page("Right1234", HERE)[0] == 302


def test_at_an_address_where_they_logged_in_before_the_right_password_still_works(user: User) -> None:
    assert login("Right1234")[0] == 200
    for _ in range(10):  # more than a stranger may, for the name and for the address
        login("wrong")
        login("wrong", username="another")
    assert login("Right1234")[0] == 200
    for _ in range(20):
        login("wrong")
    assert "Wait a moment" in login("Right1234")[1], "but nobody guesses without an end"


def test_one_address_may_not_try_many_names(user: User) -> None:
    for number in range(8):
        assert "invalid credentials" in login("wrong", username=f"user{number}")[1]
    assert "8 wrong passwords from this address" in login("wrong", username="user9")[1]
    assert "8 wrong passwords from this address" in login("Right1234")[1]
    assert login("Right1234", THERE)[0] == 200


def test_right_passwords_do_not_count(user: User) -> None:
    for _ in range(20):
        assert login("Right1234")[0] == 200


def test_tries_at_once_are_all_counted(user: User, monkeypatch: pytest.MonkeyPatch) -> None:
    """As many as like may begin before the first is known to be wrong."""
    refused = []

    def another_begins(*_: object, **__: object) -> bool:
        monkeypatch.setattr(logins, "check_password", lambda *_, **__: False)
        for _ in range(5):
            try:
                logins.log_in("guessed", "wrong", address=HERE)
            except Refusal:
                refused.append(1)
        return False

    monkeypatch.setattr(logins, "check_password", another_begins)
    assert logins.log_in("guessed", "wrong", address=HERE) is None
    assert len(refused) == 3


@pytest.mark.parametrize("name", ["x" * 100_000, "a\0b", "\ud800", ""])
def test_any_text_may_be_tried_as_a_name(name: str, settings: Any) -> None:
    assert logins.log_in(name, "wrong", address=HERE) is None
    assert page("wrong")[0] == 403
    keys = redis.Redis.from_url(settings.REDIS_URL).keys("trainmaster:logins:*")
    assert keys and all(len(key) < 100 for key in keys)
    assert login("wrong", username=name.replace("\0", "").replace("\ud800", "x"))[0] in (400, 401, 413)


def test_an_unknown_name_costs_as_much_as_a_known_one(user: User, monkeypatch: pytest.MonkeyPatch) -> None:
    from django.contrib.auth.hashers import PBKDF2PasswordHasher

    hashed: list[str] = []
    real = PBKDF2PasswordHasher.encode
    monkeypatch.setattr(
        PBKDF2PasswordHasher,
        "encode",
        lambda self, password, *more: (hashed.append(password), real(self, password, *more))[1],
    )
    for username in ("guessed", "nobody"):
        for attempt in (lambda name=username: login("wrong", username=name), lambda: page("wrong")):
            hashed.clear()
            attempt()
            assert len(hashed) == 1, username


@pytest.mark.parametrize(
    ("behind", "proxies", "forwarded", "counted"),
    [
        (False, HERE, "203.0.113.5", HERE),
        (True, HERE, "6.6.6.6, 203.0.113.5", "203.0.113.5"),
        (True, "192.0.2.0/24", "203.0.113.5", "203.0.113.5"),
        (True, THERE, "203.0.113.5", HERE),
        (True, HERE, "", HERE),
    ],
)
def test_only_a_proxy_that_is_named_says_where_a_request_comes_from(
    behind: bool, proxies: str, forwarded: str, counted: str, settings: Any, rf: Any
) -> None:
    from webui import client_address

    settings.BEHIND_PROXY, settings.TRUSTED_PROXIES = behind, [proxies]
    headers = {"X-Forwarded-For": forwarded} if forwarded else {}
    assert client_address.of(rf.get("/", headers=headers, REMOTE_ADDR=HERE)) == counted


def test_of_ipv6_the_network_counts(rf: Any) -> None:
    from webui import client_address

    assert client_address.of(rf.get("/", REMOTE_ADDR="2001:db8:1:2:3::4")) == "2001:db8:1:2::/64"
    assert client_address.of(rf.get("/", REMOTE_ADDR="::ffff:192.0.2.7")) == HERE


def test_a_login_that_outlasts_the_window_leaves_nothing_behind_for_ever(
    user: User, settings: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = redis.Redis.from_url(settings.REDIS_URL)

    def slow(*_: object, **__: object) -> bool:
        store.flushdb()  # as the window's end does
        return True

    monkeypatch.setattr(logins, "check_password", slow)
    assert logins.log_in("guessed", "Right1234", address=HERE) == user
    assert all(store.ttl(key) > 0 for key in store.keys("*"))
