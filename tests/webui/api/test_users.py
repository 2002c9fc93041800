"""Users: who may see and change whom."""

from accounts.models import LoginToken, User
from accounts.passwords import check_password, client_hash
from tests.rig.api import Api, Cast


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


def test_an_admin_links_a_unix_account_and_unlinks_it(cast: Cast) -> None:
    group = {"agentUser": "ada", "agentUid": 1001, "agentGroup": "lab", "agentGid": 2000}
    assert (
        cast.admin.patch(f"users/{_id('ada')}", {"agentUserGroup": group})["user"]["agentUserGroup"] == group
    )
    assert "agentUserGroup" not in cast.admin.patch(f"users/{_id('ada')}", {"agentUserGroup": None})["user"]


def test_root_is_no_account_for_jobs(cast: Cast) -> None:
    status, sentence = cast.admin.refused(
        "PATCH", f"users/{_id('ada')}", {"agentUserGroup": {"agentUser": "root"}}
    )
    assert status == 400
    assert "root" in sentence


def test_users_change_their_own_name_and_password_and_nothing_else(cast: Cast) -> None:
    other = Api(LoginToken.issue(User.objects.get(username="vic")))
    cast.vic.patch(f"users/{_id('vic')}", {"displayName": "Victor", "password": "Longer-Word-2"})
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
