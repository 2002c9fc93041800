"""Users, for admins: the list, the form, deactivation, passwords and tokens, and when somebody was last seen."""

from __future__ import annotations

import re
from datetime import timedelta

import pytest
from django.test import Client
from django.utils import timezone

from accounts import tokens, users
from accounts.models import AccessToken, LoginToken, Scope, User
from accounts.passwords import check_password
from accounts.refusals import Refusal
from events.models import Event
from events.record import record
from tests.rig.api import Api
from tests.rig.html import Html
from tests.rig.world import make_project, make_user, submit_experiment

pytestmark = pytest.mark.django_db


def logged_in(user: User) -> Client:
    client = Client()
    client.force_login(user, backend="django.contrib.auth.backends.ModelBackend")
    return client


@pytest.fixture
def root() -> Client:
    return logged_in(make_user("root", User.Role.ADMIN))


def text(client: Client, path: str, form: dict[str, object] | None = None, status: int = 200) -> str:
    answer = client.get(path) if form is None else client.post(path, form, follow=True)
    assert answer.status_code == status, answer.content
    return Html(answer.content)


def test_the_list_is_sorted_searched_and_says_who_was_seen(root: Client) -> None:
    ada = make_user("ada")
    User.objects.filter(pk=ada.pk).update(unix_user="lovelace", unix_uid=1001)
    for days in (1, -1):
        tokens.create(ada, description="ci", days=days, scope=Scope.READ, actor="user:ada")
    AccessToken.objects.filter(user=ada, expires_at=None).update(revoked_at=timezone.now())
    make_user("zoe", User.Role.VIEWER)
    User.objects.filter(username="zoe").update(is_active=False)
    page = text(root, "/users?sort=-username")
    assert re.findall(r'href="/users/\d+">(\w+)<', page) == ["zoe", "root", "ada"]
    assert "lovelace (1001)" in page and '<td class="number nowrap" data-label="Access tokens">1</td>' in page
    assert re.findall(r'href="/users/\d+">(\w+)<', text(root, "/users?show=deactivated")) == ["zoe"]
    assert "No users match" in text(root, "/users?q=nobody")
    for who in (ada, make_user("vic", User.Role.VIEWER)):
        assert logged_in(who).get("/users").status_code == 403
        assert 'href="/users"' not in text(logged_in(who), "/settings")


def test_a_user_is_created_with_a_password_that_is_shown_once(root: Client) -> None:
    form = {"username": "eve", "role": "editor", "unix_user": "eve", "unix_uid": "1002", "password": ""}
    page = text(root, "/users/+new", form)
    found = re.search(r'data-copy="(\w{20})"', page)
    eve = User.objects.get(username="eve")
    assert found and check_password(eve, found[1], is_hashed=False) and eve.unix_uid == 1002
    assert found[1] not in text(root, f"/users/{eve.pk}")
    assert found[1] not in str(Event.objects.filter(subject=str(eve.pk)).values())
    for wrong, said in (
        ({"username": "EVE"}, "another user is called"),
        ({"username": "kim", "password": "weak"}, "The password is weak"),
        ({"username": "kim", "unix_user": "root"}, "jobs cannot run as root"),
        ({"username": "kim", "unix_user": "", "unix_uid": "7"}, "without an account"),
    ):
        assert said in text(root, "/users/+new", {**form, **wrong}, 400)
    assert not User.objects.filter(username="kim").exists()


def test_an_edit_and_a_deactivation_say_what_follows_and_are_told(root: Client) -> None:
    make_project()
    ada = make_user("ada")
    submit_experiment(owner=ada)
    browser, login = logged_in(ada), LoginToken.issue(ada)
    _, access = tokens.create(ada, description="ci", days=1, scope=Scope.READ, actor="user:ada")
    page = text(root, f"/users/{ada.pk}")
    assert "1 access token is revoked" in page and "1 unfinished job keeps" in page
    form = {"username": "ada", "display_name": "Ada", "email": "", "role": "viewer", "unix_user": "ada"}
    assert "User ada saved" in text(root, f"/users/{ada.pk}/edit", form)
    event = Event.objects.filter(kind=Event.Kind.USER, subject=str(ada.pk)).latest("pk")
    changes = {"display_name": ["", "Ada"], "role": ["editor", "viewer"], "unix_user": ["", "ada"]}
    assert (event.actor, event.origin, event.detail["changes"]) == ("user:root", "127.0.0.1", changes)
    assert "User ada deactivated" in text(root, f"/users/{ada.pk}/do/deactivate", {})
    assert browser.get("/settings").status_code == 302, "their sessions have ended"
    assert LoginToken.find_user(login) is None and AccessToken.find_user(access) is None
    assert "User ada activated" in text(root, f"/users/{ada.pk}/do/activate", {})
    me = User.objects.get(username="root").pk
    assert "only active admin" in text(root, f"/users/{me}/do/deactivate", {})
    assert "Change your own password in Settings" in text(root, f"/users/{me}/do/password", {}, 400)


def test_passwords_and_tokens_of_others_are_an_admins_to_change(root: Client) -> None:
    ada = make_user("ada")
    row, access = tokens.create(ada, description="ci", days=1, scope=Scope.READ, actor="user:ada")
    page = text(root, f"/users/{ada.pk}/do/password", {"password": "", "keep": "on"})
    found = re.search(r'data-copy="(\w{20})"', page)
    ada.refresh_from_db()
    assert found and check_password(ada, found[1], is_hashed=False)
    assert AccessToken.find_user(access) == ada, "kept"
    assert "has been revoked" in text(root, f"/users/{ada.pk}/tokens/{row.pk}/revoke", {})
    assert AccessToken.find_user(access) is None


def test_seen_is_about_when_somebody_asked_for_something(db: None) -> None:
    ada = make_user("ada")
    token = LoginToken.issue(ada)

    def seen_after(hours: int) -> bool:
        User.objects.filter(pk=ada.pk).update(seen_at=timezone.now() - timedelta(hours=hours))
        return True

    def is_fresh() -> bool:
        seen = User.objects.get(pk=ada.pk).seen_at
        return seen is not None and timezone.now() - seen < timedelta(minutes=1)

    browser = logged_in(ada)
    assert seen_after(1) and browser.get("/jobs?part").status_code == 200 and not is_fresh(), "by itself"
    assert browser.get("/settings").status_code == 200 and is_fresh()
    assert seen_after(1) and Api(token).get("me")["user"]["lastSeenAt"] and is_fresh()
    first = User.objects.get(pk=ada.pk).seen_at
    Api(token).get("me")
    assert User.objects.get(pk=ada.pk).seen_at == first, "at most once a minute"


def test_a_change_of_ones_own_undoes_nothing_that_came_between(root: Client) -> None:
    """The row as it was when the request began is old by the time that slow hashes are done."""
    old = make_user("ada", User.Role.ADMIN)
    User.objects.filter(pk=old.pk).update(role=User.Role.VIEWER)
    users.change(old, {"display_name": "Ada L."}, asking=old)
    assert User.objects.get(pk=old.pk).role == User.Role.VIEWER
    User.objects.filter(pk=old.pk).update(password="another's")
    with pytest.raises(Refusal, match="changed by someone else"):
        users.change(old, {}, asking=old, password="Better5678")
    User.objects.filter(pk=old.pk).update(is_active=False)
    with pytest.raises(Refusal, match="deactivated"):
        users.change(old, {"display_name": "Ada"}, asking=old)


def test_nobody_takes_a_name_under_which_another_user_acted(root: Client) -> None:
    ada = make_user("ada")
    submit_experiment(owner=ada)
    record(Event.Kind.EXPERIMENT, "1", reason="paused_by_user", actor="user:ada")
    users.change(ada, {"username": "lovelace"}, asking=User.objects.get(username="root"))
    page = text(root, "/users/+new", {"username": "ada", "role": "editor", "password": ""}, status=400)
    assert "another user was called when they made changes here" in page
    users.change(ada, {"username": "ada"}, asking=User.objects.get(username="root"))
