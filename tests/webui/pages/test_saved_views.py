"""Saved views: what a user names stays theirs or becomes the team's, and opens the address that it was."""

from __future__ import annotations

import re

import pytest
from django.test import Client

from accounts import saved_views
from accounts.models import SavedView, User
from events.models import Event
from tests.rig.html import Html
from tests.rig.world import make_host, make_user

pytestmark = pytest.mark.django_db


def of(name: str, role: str = User.Role.EDITOR) -> Client:
    client = Client()
    client.force_login(make_user(name, role))
    return client


def said(client: Client, path: str, **form: str) -> str:
    answer = client.post(path, form, follow=True) if form else client.get(path)
    assert answer.status_code == 200, answer.content
    return Html(answer.content)


def menu(client: Client, page: str) -> list[tuple[str, str]]:
    """Address and name of each view in the menu of a page."""
    found = re.search(
        r'<details class="menu views-menu".*?<form method="post" action="/views"',
        said(client, page),
        re.DOTALL,
    )
    assert found is not None
    links = re.findall(r'<a href="([^"]*)"[^>]*>([^<]*)</a>', found[0])
    return [(address.replace("&amp;", "&"), name) for address, name in links]


def test_a_view_is_saved_for_its_page_opened_and_shared() -> None:
    make_host("gpu1", slots=1)
    ada, bob = of("ada"), of("bob")
    mine = "/compare?q=resnet&group=lr&smooth=0.6"
    assert "View &#x27;by rate&#x27; saved" in said(ada, "/views", name=" by  rate ", back=f"{mine}&part=1")
    said(ada, "/views", name="failed", back="/experiments?state=failed&page=3", shared="on")
    said(ada, "/views", name="my jobs", back="/jobs/default?show=mine", shared="on")
    assert menu(ada, "/compare") == [(mine, "by rate")] and menu(bob, "/compare") == []
    assert menu(bob, "/experiments") == [("/experiments?state=failed", "failed")]
    assert menu(bob, "/jobs/default") == [("/jobs/default?show=mine", "my jobs")]
    assert "View: failed" in said(bob, "/experiments?state=failed")
    said(ada, "/views", name="by rate", back="/compare?q=vit")
    assert menu(ada, "/compare") == [("/compare?q=vit", "by rate")], "a name is given once for a page"


def test_the_owner_and_admins_change_what_is_the_teams() -> None:
    ada, bob, root = of("ada"), of("bob"), of("root", User.Role.ADMIN)
    said(ada, "/views", name="ours", back="/experiments?user=me", shared="on")
    said(ada, "/views", name="hers", back="/experiments?user=me")
    ours, hers = SavedView.objects.get(name="ours"), SavedView.objects.get(name="hers")
    refusal = "belongs to ada; only its owner or an admin can change it."
    assert refusal in said(bob, f"/views/{ours.pk}", do="delete", back="/experiments")
    assert root.post(f"/views/{hers.pk}", {"do": "delete"}).status_code == 404, (
        "nobody else sees what is not shared"
    )
    said(root, f"/views/{ours.pk}", do="change", name="renamed", shared="on", back="/experiments")
    assert "You already have a view named &#x27;hers&#x27;" in said(
        ada, f"/views/{ours.pk}", name="hers", back="/experiments"
    )
    assert menu(bob, "/experiments") == [("/experiments?user=me", "renamed")]
    said(root, f"/views/{ours.pk}", do="delete", back="/experiments")
    assert menu(ada, "/experiments") == [("/experiments?user=me", "hers")]
    told = Event.objects.filter(kind=Event.Kind.USER, reason__startswith="view").values_list(
        "actor", "reason"
    )
    assert list(told)[2:] == [("user:root", "view changed"), ("user:root", "view deleted")]


def test_viewers_keep_their_own_views_and_share_none() -> None:
    vic = of("vic", User.Role.VIEWER)
    said(vic, "/views", name="own", back="/experiments?user=me")
    assert menu(vic, "/experiments") == [("/experiments?user=me", "own")]
    assert "vic is a viewer" in said(vic, "/views", name="ours", back="/experiments", shared="on")
    assert not SavedView.objects.filter(is_shared=True)


@pytest.mark.parametrize(
    ("form", "sentence"),
    [
        ({"name": "  ", "back": "/experiments"}, "Enter a name of 1 to 80 characters"),
        ({"name": "x" * 81, "back": "/experiments"}, "Enter a name of 1 to 80 characters"),
        ({"name": "x", "back": "/settings"}, "Only these pages have saved views"),
        ({"name": "x", "back": f"/compare?trials={'7,' * 1000}"}, "has 2,016 characters; at most 2,000"),
    ],
)
def test_what_cannot_be_saved_is_said(form: dict[str, str], sentence: str) -> None:
    assert sentence in said(of("ada"), "/views", **form)
    assert not SavedView.objects.exists()


def test_a_page_offers_its_whole_address_or_none_of_it() -> None:
    address = f"/compare?trials={'7,' * 1000}"
    back = re.search(r'name="back" value="(/compare[^"]*)"', said(of("ada"), address))
    assert back is not None and back[1] == address


def test_a_user_has_a_bounded_number_of_views(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(saved_views, "MOST_PER_USER", 1)
    ada = of("ada")
    said(ada, "/views", name="one", back="/experiments")
    assert "You have 1 saved views, which is the maximum" in said(
        ada, "/views", name="two", back="/experiments"
    )
    said(ada, "/views", name="one", back="/experiments?state=failed")
    assert SavedView.objects.get().address == "/experiments?state=failed"


def test_an_address_of_another_site_is_not_saved() -> None:
    said(of("ada"), "/views", name="x", back="https://example.org/experiments")
    assert SavedView.objects.get().address == "/experiments"
