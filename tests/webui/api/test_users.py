"""Users: who may see and change whom."""

import pytest
from django.test import Client

from accounts import tokens
from accounts.models import AccessToken, LoginToken, Scope, User
from accounts.passwords import check_password, client_hash, set_password
from events.models import Event
from tests.rig.api import Api, Cast, Json


def _id(name: str) -> int:
    return User.objects.get(username=name).pk


def test_everybody_sees_the_list_with_its_pagination(cast: Cast) -> None:
    answer = cast.vic.get("users?limit=2&orderBy=ORDER_BY_DESC")
    assert [user["username"] for user in answer["users"]] == ["vic", "bob"]
    assert answer["pagination"] == {"offset": 0, "limit": 2, "startIndex": 0, "endIndex": 2, "total": 4}


def test_an_admin_makes_a_user_who_can_log_in(cast: Cast) -> None:
    body = {
        "user": {"username": "eve", "admin": False, "active": True},
        "password": client_hash("x"),
        "isHashed": True,
    }
    assert cast.admin.post("users", body)["user"]["admin"] is False
    assert cast.stranger.post("auth/login", {"username": "eve", "password": "x"})["token"]


def test_a_weak_password_and_a_doubled_name_are_refused(cast: Cast) -> None:
    weak = cast.admin.refused("POST", "users", {"user": {"username": "eve"}, "password": "short"})
    assert weak == (400, "The password is weak: it needs 8 characters, an upper-case letter, a digit.")
    assert not User.objects.filter(username="eve").exists()
    assert cast.admin.refused("POST", "users", {"user": {"username": "ada"}})[0] == 409


def test_editors_and_viewers_make_no_users(cast: Cast) -> None:
    for who in (cast.ada, cast.vic):
        assert who.refused("POST", "users", {"user": {"username": "eve"}})[0] == 403
    assert cast.stranger.refused("POST", "users", {"user": {"username": "eve"}})[0] == 401


def _linked(cast: Cast, group: Json) -> Json:
    """The link of ada after an admin has sent this one."""
    user = cast.admin.patch(f"users/{_id('ada')}", {"agentUserGroup": group})["user"]
    return dict(user["agentUserGroup"])


def test_an_admin_links_a_unix_account_and_unlinks_it(cast: Cast) -> None:
    group = {"agentUser": "ada", "agentUid": 1001, "agentGroup": "lab", "agentGid": 2000}
    assert (
        cast.admin.patch(f"users/{_id('ada')}", {"agentUserGroup": group})["user"]["agentUserGroup"] == group
    )
    for part in ({"agentUid": 1001}, {"agentUser": None, "agentGid": 2000}, {}):
        status, sentence = cast.admin.refused("PATCH", f"users/{_id('ada')}", {"agentUserGroup": part})
        assert status == 400 and "agentUser is missing" in sentence
    assert User.objects.get(username="ada").unix_user == "ada", "a part of a link does not clear it"
    assert _linked(cast, {"agentUser": "ada"}) == group, "numbers stay pinned"
    assert _linked(cast, {"agentUser": "ada", "agentGid": None}).get("agentGid") is None, "until taken away"
    assert _linked(cast, {"agentUser": "eve"}).get("agentUid") is None, "another account has other numbers"
    assert (
        cast.admin.patch(f"users/{_id('ada')}", {"agentUserGroup": None})["user"].get("agentUserGroup")
        is None
    )


@pytest.mark.parametrize("name", ["ré", "a b", "a/b", "", "x" * 151])
def test_a_name_that_is_not_allowed_is_refused_with_what_is(cast: Cast, name: str) -> None:
    status, sentence = cast.admin.refused("POST", "users", {"user": {"username": name}})
    assert status == 400 and "username" in sentence
    if name:
        assert "allowed: 1 to 150 of the letters A-Z and a-z, digits and the characters . _ @ + $" in sentence
        assert cast.admin.refused("PATCH", f"users/{_id('ada')}", {"username": name}) == (400, sentence)


def test_no_user_is_called_like_another(cast: Cast) -> None:
    assert cast.admin.patch(f"users/{_id('bob')}", {"username": "rename-user-$64"})["user"]["id"]
    cast.admin.patch(f"users/{_id('ada')}", {"displayName": "Ada Lovelace"})
    cast.ada.patch(f"users/{_id('ada')}", {"displayName": "ADA"})  # her own name
    for who, taken in ((cast.vic, "ada"), (cast.vic, "Rename-User-$64")):
        status, sentence = who.refused("PATCH", f"users/{_id('vic')}", {"displayName": taken})
        assert status == 400 and "another user" in sentence
    assert cast.admin.refused("POST", "users", {"user": {"username": "ADA"}})[0] == 409
    assert cast.admin.refused("PATCH", f"users/{_id('vic')}", {"username": "Ada"})[0] == 409


def test_root_is_no_account_for_jobs(cast: Cast) -> None:
    status, sentence = cast.admin.refused(
        "PATCH", f"users/{_id('ada')}", {"agentUserGroup": {"agentUser": "root"}}
    )
    assert status == 400
    assert "root" in sentence


def test_users_change_their_own_name_and_password_and_nothing_else(cast: Cast) -> None:
    other = Api(LoginToken.issue(User.objects.get(username="vic")))
    _with_password("vic", "Right1234")
    new = {"displayName": "Victor", "password": "Longer-Word-2", "oldPassword": "Right1234"}
    cast.vic.patch(f"users/{_id('vic')}", new)
    vic = User.objects.get(username="vic")
    assert vic.display_name == "Victor"
    assert check_password(vic, "Longer-Word-2", is_hashed=False)
    assert cast.vic.get("me"), "the session that changed the password goes on"
    assert other.refused("GET", "me")[0] == 401
    assert cast.vic.refused("PATCH", f"users/{_id('vic')}", {"admin": True})[0] == 403
    assert cast.ada.refused("PATCH", f"users/{_id('bob')}", {"displayName": "x"})[0] == 403


def test_an_own_account_with_its_own_value_of_admin_is_not_changed_by_an_editor(cast: Cast) -> None:
    assert (
        cast.ada.refused("PATCH", f"users/{_id('ada')}", {"agentUserGroup": {"agentUser": "bob"}})[0] == 403
    )


def test_the_last_admin_stays(cast: Cast) -> None:
    status, sentence = cast.admin.refused("PATCH", f"users/{_id('admin')}", {"admin": False})
    assert status == 400
    assert "only active admin" in sentence


def test_a_user_is_found_by_id_and_by_name(cast: Cast) -> None:
    assert cast.bob.get(f"users/{_id('ada')}")["user"]["username"] == "ada"
    assert cast.bob.get("users/ada/by-username")["user"]["id"] == _id("ada")
    assert cast.bob.refused("GET", "users/999999") == (404, "user 999999 not found")
    assert cast.bob.refused("GET", "users/nobody/by-username")[0] == 404


def test_settings_are_kept_per_user(cast: Cast) -> None:
    cast.vic.post("users/setting", {"settings": [{"key": "columns", "storagePath": "queue", "value": "[1]"}]})
    assert cast.vic.get("users/setting")["settings"] == [
        {"key": "columns", "storagePath": "queue", "value": "[1]"}
    ]
    assert cast.ada.get("users/setting")["settings"] == []
    cast.vic.post("users/setting/reset")
    assert cast.vic.get("users/setting")["settings"] == []


def test_no_answer_carries_a_password(cast: Cast) -> None:
    assert "password" not in str(cast.admin.get("users"))


def _with_password(name: str, password: str) -> User:
    user = User.objects.get(username=name)
    set_password(user, password, is_hashed=False)
    user.save()
    return user


def _session(user: User) -> Client:
    browser = Client()
    browser.force_login(user, backend="django.contrib.auth.backends.ModelBackend")
    return browser


@pytest.mark.parametrize(
    ("old", "status"), [(None, 400), ("Wrong1234", 403), ("Right1234", 200)], ids=["none", "wrong", "right"]
)
def test_a_browser_changes_its_password_only_with_the_old_one(
    cast: Cast, redis_server: object, old: str | None, status: int
) -> None:
    ada = _with_password("ada", "Right1234")
    body = {"password": "Better5678", **({"oldPassword": old} if old else {})}
    answer = _session(ada).patch(f"/api/v1/users/{ada.pk}", body, content_type="application/json")
    assert answer.status_code == status, answer.content
    ada.refresh_from_db()
    assert check_password(ada, "Better5678" if status == 200 else "Right1234", is_hashed=False)


@pytest.mark.parametrize("name", ["ada", "admin"])
def test_nobody_changes_their_own_password_with_a_token_alone(
    cast: Cast, redis_server: object, name: str
) -> None:
    user = _with_password(name, "Right1234")
    _, access = tokens.create(user, description="ci", days=1, scope=Scope.FULL, actor=f"user:{name}")
    new = {"password": client_hash("Better5678"), "isHashed": True}
    for api in (Api(access), Api(LoginToken.issue(user))):
        status, said = api.refused("PATCH", f"users/{user.pk}", new)
        assert status == 400 and said.startswith("oldPassword: your current password is required")
        wrong = {**new, "oldPassword": client_hash("Wrong1234")}
        assert api.refused("PATCH", f"users/{user.pk}", wrong)[0] == 403
        assert Event.objects.latest("pk").reason == "login_failed"
    user.refresh_from_db()
    assert check_password(user, "Right1234", is_hashed=False)
    Api(access).patch(f"users/{user.pk}", {**new, "oldPassword": client_hash("Right1234")})
    user.refresh_from_db()
    assert check_password(user, "Better5678", is_hashed=False)


def test_who_has_only_single_sign_on_sets_a_first_password(cast: Cast) -> None:
    vic = User.objects.get(username="vic")
    vic.set_unusable_password()
    vic.save()
    cast.vic.patch(f"users/{vic.pk}", {"password": "Better5678"})
    vic.refresh_from_db()
    assert check_password(vic, "Better5678", is_hashed=False)


@pytest.mark.parametrize("hashed", ["x", "0" * 127, "Z" * 128, client_hash("password")[:-1], "Right1234"])
def test_what_is_no_hash_is_not_taken_for_one(cast: Cast, hashed: str) -> None:
    status, said = cast.admin.refused("PATCH", f"users/{_id('ada')}", {"password": hashed, "isHashed": True})
    assert status == 400 and "128 hexadecimal digits" in said


def test_a_hash_of_what_everybody_guesses_is_refused(cast: Cast) -> None:
    body = {"password": client_hash("password"), "isHashed": True}
    status, said = cast.admin.refused("PATCH", f"users/{_id('ada')}", body)
    assert status == 400 and "weak" in said


@pytest.mark.parametrize("keep", [False, True])
def test_an_admins_reset_revokes_access_tokens_unless_they_are_kept(cast: Cast, keep: bool) -> None:
    ada = _with_password("ada", "Right1234")
    _, token = tokens.create(ada, description="ci", days=1, scope=Scope.READ, actor="user:ada")
    cast.admin.patch(
        f"users/{ada.pk}", {"password": "Better5678", **({"keepAccessTokens": True} if keep else {})}
    )
    assert (AccessToken.find_user(token) is not None) is keep
    event = Event.objects.filter(kind=Event.Kind.USER, subject=str(ada.pk)).latest("pk")
    assert event.detail["accessTokens"] == ("kept" if keep else "revoked")


def test_ones_own_change_keeps_ones_tokens(cast: Cast) -> None:
    ada = _with_password("ada", "Right1234")
    _, token = tokens.create(ada, description="ci", days=1, scope=Scope.READ, actor="user:ada")
    cast.ada.patch(f"users/{ada.pk}", {"password": "Better5678", "oldPassword": "Right1234"})
    assert AccessToken.find_user(token) == ada


@pytest.mark.parametrize("group", [{"agentGroup": "root"}, {"agentGid": 0}])
def test_jobs_get_no_group_of_root(cast: Cast, group: dict[str, object]) -> None:
    wanted = {"agentUser": "ada", "agentUid": 1001, **group}
    assert cast.admin.refused("PATCH", f"users/{_id('ada')}", {"agentUserGroup": wanted})[0] == 400
