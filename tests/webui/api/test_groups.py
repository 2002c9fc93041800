"""Groups of people over REST and on their pages: departments, teams, who is in them, and what is refused."""

from __future__ import annotations

import pytest
from django.test import Client

from accounts import user_groups
from accounts.models import Group, User
from accounts.refusals import Refusal
from events.models import Event
from tests.rig.api import Cast
from tests.rig.html import Html
from tests.rig.world import make_user

pytestmark = pytest.mark.django_db


def _id(name: str) -> int:
    return User.objects.get(username=name).pk


def test_a_group_has_users_who_are_in_one_group_at_most(cast: Cast) -> None:
    research = cast.admin.post("groups", {"name": "research", "addUsers": [_id("ada"), _id("bob")]})["group"]
    assert [user["username"] for user in research["users"]] == ["ada", "bob"]
    vision = cast.admin.post("groups", {"name": "vision", "parent": "research", "addUsers": [_id("ada")]})[
        "group"
    ]
    assert (vision["parent"], [user["username"] for user in vision["users"]]) == ("research", ["ada"])
    found = cast.vic.post("groups/search", {"userId": _id("ada")})["groups"]
    assert [(row["group"]["name"], row["numMembers"]) for row in found] == [("vision", 1)]
    assert [row["group"]["name"] for row in cast.vic.post("groups/search", {})["groups"]] == [
        "research",
        "vision",
    ]
    changed = cast.admin.put(f"groups/{vision['groupId']}", {"name": "sight", "removeUsers": [_id("ada")]})[
        "group"
    ]
    assert (changed["name"], changed["users"]) == ("sight", [])
    events = Event.objects.filter(kind=Event.Kind.GROUP, subject=str(vision["groupId"])).order_by("pk")
    assert [(event.reason, event.detail["changes"]) for event in events] == [
        ("created", {"parent": ["", "research"], "members": ["", "ada"]}),
        ("changed", {"name": ["vision", "sight"], "members": ["ada", ""]}),
    ]
    cast.admin.delete(f"groups/{vision['groupId']}")
    assert list(Group.objects.values_list("name", flat=True)) == ["research"]


@pytest.mark.parametrize(
    ("values", "sentence"),
    [
        ({"parent": "research"}, "Group research cannot be in itself."),
        ({"parent": "vision"}, "vision is a team of research and cannot have teams: there are two levels."),
        ({"parent": "ops"}, "Group research has teams and cannot become a team: there are two levels."),
        ({"parent": "moon"}, "There is no group moon."),
        ({"name": "VISION"}, "A group named 'VISION' already exists."),
        ({"name": "a=b"}, "allowed: 1 to 64 letters, digits"),
    ],
)
def test_what_cannot_be_is_refused_and_changes_nothing(values: dict[str, str], sentence: str) -> None:
    research = user_groups.create("research", actor="user:root")
    user_groups.create("vision", parent="research", actor="user:root")
    user_groups.create("ops", actor="user:root")
    with pytest.raises(Refusal) as refused:
        user_groups.change(research, **values, actor="user:root")  # type: ignore[arg-type]
    assert sentence in str(refused.value)
    assert {group.path for group in user_groups.every()} == {("research",), ("research", "vision"), ("ops",)}


def test_a_department_with_teams_is_not_deleted(cast: Cast) -> None:
    group = user_groups.create("research", actor="user:root")
    user_groups.create("vision", parent="research", actor="user:root")
    status, sentence = cast.admin.refused("DELETE", f"groups/{group.pk}")
    assert (status, sentence) == (
        409,
        "Group research has teams: vision. Delete them, or move them out, first.",
    )
    assert cast.ada.refused("DELETE", f"groups/{group.pk}")[0] == 403
    assert cast.admin.refused("POST", "groups", {"name": "x", "addUsers": [0]}) == (
        400,
        "There is no user 0.",
    )


def test_an_admin_creates_edits_and_deletes_a_group_on_its_pages() -> None:
    root, ada = make_user("root", User.Role.ADMIN), make_user("ada")
    client, other = Client(), Client()
    for each, user in ((client, root), (other, ada)):
        each.force_login(user, backend="django.contrib.auth.backends.ModelBackend")
    client.post("/groups/+new", {"name": "research"})
    client.post("/groups/+new", {"name": "vision", "parent": "research", "members": "ada, root"})
    assert Group.objects.get(name="vision").path == ("research", "vision")
    listed = Html(other.get("/groups").content)
    assert listed.index("/groups/research") < listed.index("/groups/vision") and "/groups/+new" not in listed
    assert "ada" in Html(other.get("/groups/vision").content)
    assert other.get("/groups/vision/edit").status_code == 403
    client.post("/groups/vision/edit", {"name": "sight", "parent": "", "members": "root"})
    assert list(Group.objects.get(name="sight", parent=None).members.all()) == [root]
    wrong = client.post("/groups/sight/edit", {"members": "root nobody-here"})
    assert wrong.status_code == 400 and "There is no user nobody-here." in Html(wrong.content)
    client.post("/groups/sight/delete")
    assert client.get("/groups/sight").status_code == 404
    ada.refresh_from_db()
    assert ada.group is None
