"""Logging in and out: passwords in the clients' hash, tokens, and what strangers may see."""

from datetime import timedelta

from django.test import Client
from django.utils import timezone

from accounts.models import LoginToken, User
from accounts.passwords import client_hash, set_password
from tests.rig.api import Api, Cast

PASSWORD = "Secret-Word-1"


def _with_password(name: str) -> None:
    user = User.objects.get(username=name)
    set_password(user, PASSWORD, is_hashed=False)
    user.save()


def test_a_plain_and_a_hashed_password_log_in(cast: Cast) -> None:
    _with_password("ada")
    plain = cast.stranger.post("auth/login", {"username": "ada", "password": PASSWORD})
    hashed = cast.stranger.post(
        "auth/login", {"username": "ada", "password": client_hash(PASSWORD), "isHashed": True}
    )
    for answer in (plain, hashed):
        assert answer["user"]["username"] == "ada"
        assert Api(answer["token"]).get("me")["user"]["username"] == "ada"


def test_a_wrong_password_and_an_unknown_name_get_the_same_401(cast: Cast) -> None:
    _with_password("ada")
    wrong = cast.stranger.refused("POST", "auth/login", {"username": "ada", "password": "nope"})
    unknown = cast.stranger.refused("POST", "auth/login", {"username": "nobody", "password": "nope"})
    assert wrong == unknown == (401, "invalid credentials")


def test_an_account_without_a_password_cannot_log_in(cast: Cast) -> None:
    assert cast.stranger.refused("POST", "auth/login", {"username": "ada", "password": ""})[0] == 401


def test_an_inactive_user_is_told_so_and_loses_the_tokens(cast: Cast) -> None:
    _with_password("ada")
    ada = User.objects.get(username="ada")
    cast.admin.patch(f"users/{ada.pk}", {"active": False})
    assert cast.ada.refused("GET", "me")[0] == 401
    status, sentence = cast.stranger.refused("POST", "auth/login", {"username": "ada", "password": PASSWORD})
    assert status == 403
    assert "deactivated" in sentence


def test_logout_forgets_this_token_alone(cast: Cast) -> None:
    other = Api(LoginToken.issue(User.objects.get(username="ada")))
    cast.ada.post("auth/logout")
    assert cast.ada.refused("GET", "me")[0] == 401
    assert other.get("me")


def test_an_expired_token_is_refused(cast: Cast) -> None:
    LoginToken.objects.filter(user__username="ada").update(expires_at=timezone.now() - timedelta(seconds=1))
    assert cast.ada.refused("GET", "auth/user")[0] == 401


def test_only_the_hash_of_a_token_is_stored(cast: Cast) -> None:
    token = cast.ada.headers["authorization"].removeprefix("Bearer ")
    assert not LoginToken.objects.filter(hash=token).exists()


def test_the_stranger_is_sent_to_log_in(cast: Cast) -> None:
    status, sentence = cast.stranger.refused("GET", "experiments")
    assert status == 401
    assert "log in" in sentence


def test_a_browser_session_reads_and_writes_only_with_a_csrf_token(cast: Cast) -> None:
    client = Client(enforce_csrf_checks=True)
    client.force_login(User.objects.get(username="ada"))
    assert client.get("/api/v1/me").json()["user"]["username"] == "ada"
    blocked = client.post("/api/v1/templates/t", {"config": {}}, content_type="application/json")
    assert blocked.status_code == 403
    assert "CSRF" in blocked.json()["message"]


def test_a_login_without_a_name_says_which_field(cast: Cast) -> None:
    status, sentence = cast.stranger.refused("POST", "auth/login", {"password": "x"})
    assert status == 400
    assert sentence.startswith("username: ")


def test_a_body_that_is_not_json_is_refused_with_a_sentence(cast: Cast) -> None:
    answer = cast.stranger.client.generic("POST", "/api/v1/auth/login", b"{")
    assert answer.status_code == 400
    assert "not JSON" in answer.json()["message"]


def test_a_wrong_method_is_405(cast: Cast) -> None:
    assert cast.stranger.refused("GET", "auth/login")[0] == 405
    assert cast.ada.refused("DELETE", "me")[0] == 405
