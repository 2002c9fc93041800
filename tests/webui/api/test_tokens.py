"""Access tokens: what their scopes reach, on every address of the API, and how they end."""

from __future__ import annotations

import re
from datetime import timedelta
from typing import Any

import pytest
from django.urls import URLPattern
from django.utils import timezone

from accounts.models import AccessToken, Scope, User
from tests.rig.api import Api, Cast, Json
from webui.api import urls
from webui.api.async_routes import urlpatterns as async_routes

CHANGES = ("POST", "PUT", "PATCH", "DELETE")
#: they take no login of a person
OPEN = {"/api/v1/auth/login"}
#: what Determined's clients read by POST
READ_BY_POST = {"/api/v1/groups/search"}


def made(by: Api, **body: Any) -> Json:
    return by.post("tokens", body)


def test_a_token_is_shown_once_lasts_as_long_as_was_said_and_is_revoked(cast: Cast) -> None:
    answer = made(cast.ada, description="nightly", lifespan="48h", scope="write")
    token, pk = answer["token"], answer["tokenId"]
    assert token.startswith("tma_")
    assert Api(token).get("me")["user"]["username"] == "ada"
    [info] = cast.ada.get("tokens")["tokenInfo"]
    assert info["description"] == "nightly" and info["tokenType"] == "TOKEN_TYPE_ACCESS_TOKEN"
    assert token not in str(cast.ada.get("tokens"))
    row = AccessToken.objects.get(pk=pk)
    assert row.expires_at and timedelta(hours=47) < row.expires_at - timezone.now() < timedelta(hours=49)
    assert row.used_at is not None
    assert cast.bob.refused("PATCH", f"tokens/{pk}", {"setRevoked": True})[0] == 404
    assert cast.ada.patch(f"tokens/{pk}", {"setRevoked": True})["tokenInfo"]["revoked"] is True
    assert Api(token).refused("GET", "me")[0] == 401
    assert cast.ada.get("tokens")["tokenInfo"] == []
    assert len(cast.ada.get("tokens?showInactive=true")["tokenInfo"]) == 1
    for lifespan in ("1 year", "0h"):
        assert cast.ada.refused("POST", "tokens", {"lifespan": lifespan})[0] == 400


def test_an_expired_token_and_one_of_a_deactivated_user_open_nothing(cast: Cast) -> None:
    first, second = made(cast.ada)["token"], made(cast.bob, lifespan="-1")["token"]
    AccessToken.objects.filter(user__username="ada").update(expires_at=timezone.now())
    assert Api(first).refused("GET", "me")[0] == 401
    assert Api(second).get("me")["user"]["username"] == "bob"
    cast.admin.patch(f"users/{User.objects.get(username='bob').pk}", {"active": False})
    assert Api(second).refused("GET", "me")[0] == 401
    assert AccessToken.objects.get(user__username="bob").revoked_at is not None


def test_a_lesser_scope_makes_no_greater_one_and_no_password(cast: Cast) -> None:
    writer = Api(made(cast.admin, scope="write")["token"])
    me = writer.get("me")["user"]
    assert me["admin"] is False, "it is an admin's, and may not what admins may"
    assert "scope write" in writer.refused("POST", "tokens", {"scope": "full"})[1]
    assert (
        "scope write" in writer.refused("PATCH", f"users/{me['id']}", {"password": "Another-1-password"})[1]
    )
    assert "scope write" in writer.refused("POST", "users", {"user": {"username": "x"}})[1]
    assert writer.post("workspaces", {"name": "mine"})["workspace"]["name"] == "mine"
    assert cast.ada.refused("POST", "tokens", {"userId": me["id"]})[0] == 403
    assert (
        Api(made(cast.admin)["token"]).post("users", {"user": {"username": "y"}})["user"]["username"] == "y"
    )


@pytest.mark.parametrize(
    ("role", "full", "write", "read"),
    [
        ("admin", "admin", "editor", "viewer"),
        ("editor", "editor", "editor", "viewer"),
        ("viewer", "viewer", "viewer", "viewer"),
    ],
)
def test_rules_that_ask_for_a_role_hear_of_no_more_than_the_scope_reaches(
    role: str, full: str, write: str, read: str
) -> None:
    user = User(role=role)
    found = []
    for scope in (Scope.FULL, Scope.WRITE, Scope.READ):
        user.scope = scope
        found.append(user.acting_role)
    assert found == [full, write, read]


def addresses() -> list[tuple[str, Any]]:
    """An address of every pattern of the API, and its view."""
    values = {
        "int": "987654",
        "project": "987654",
        "uuid": "00000000-0000-4000-8000-000000000000",
        "str": "none",
        "path": "none",
    }
    found = []
    for pattern in urls.urlpatterns:
        assert isinstance(pattern, URLPattern)
        route = str(pattern.pattern)
        if "(" in route or "^" in route:
            continue
        found.append(("/" + re.sub(r"<(\w+):\w+>", lambda each: values[each[1]], route), pattern.callback))
    return found


@pytest.mark.django_db
def test_the_scope_read_changes_nothing_at_any_address(cast: Cast) -> None:
    reader = Api(made(cast.admin, scope="read")["token"])
    asynchronous = {pattern.callback for pattern in async_routes}
    tried = 0
    for address, view in addresses():
        if view in asynchronous or address in OPEN | READ_BY_POST:
            continue
        known = getattr(view, "view_class", None) or getattr(view, "cls", None)
        for method in CHANGES:
            if (
                known is None
                or not hasattr(known, method.lower())
                or method.lower() not in known.http_method_names
            ):
                continue
            status, answer = reader.send(method, address, {})
            assert status == 403, f"{method} {address}: {status} {answer}"
            assert "scope read" in str(answer), f"{method} {address}: {answer}"
            tried += 1
    assert tried > 80
    assert reader.get("experiments")["experiments"] == []
    assert all(reader.send("POST", address, {})[0] == 200 for address in READ_BY_POST)


@pytest.mark.django_db
def test_the_scope_read_changes_nothing_at_async_addresses(cast: Cast) -> None:
    """They take their principals from one decorator, which no test client need await 30 times to see."""
    reader = Api(made(cast.ada, scope="read")["token"])
    status, answer = reader.send("POST", "tasks/none/stacks", {})
    assert status == 403 and "scope read" in str(answer)
