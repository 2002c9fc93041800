"""What groups hold of a pool, on the pages of both, over REST, and in the history of usage."""

from __future__ import annotations

import pytest
from django.test import Client
from django.utils import timezone

from accounts import user_groups
from accounts.models import User
from dispatch.keeping import pool_history, usage
from dispatch.passes import pool_pass
from hosts import pool_edits
from hosts.pools import default_pool
from jobs import group_rows as groups
from jobs.group_rows import GroupRow
from tests.rig.html import Html
from tests.rig.world import make_host, make_user, submit_experiment

pytestmark = pytest.mark.django_db
ROOT = "user:root"


@pytest.fixture
def busy() -> None:
    """vision, a team of research, holds 3 of 4 slots, 1 of them guaranteed; speech leaves one of its two to others."""
    make_host("gpu1", 4)
    user_groups.create("research", actor=ROOT)
    user_groups.create("vision", parent="research", add=[make_user("ada")], actor=ROOT)
    user_groups.create("speech", add=[make_user("bob")], actor=ROOT)
    shares = {"vision": {"guarantee": 1, "limit": 3}, "speech": {"guarantee": 2, "weight": 1.5}}
    pool_edits.edit("default", {"group_shares": shares}, actor=ROOT)
    for _ in range(4):
        submit_experiment(slots=1, owner=make_user("ada"))
    submit_experiment(slots=1, owner=make_user("bob"))
    pool_pass.run(default_pool().pk)


def test_a_group_holds_borrows_lends_and_waits(busy: None) -> None:
    assert groups.of_pool(default_pool()) == [
        GroupRow("default", "research", "", 1, None, 1.0, 3, 2, 0, 1),
        GroupRow("default", "vision", "research", 1, 3, 1.0, 3, 2, 0, 1),
        GroupRow("default", "speech", "", 2, None, 1.5, 1, 0, 1, 0),
    ]
    assert [row.pool for row in groups.of_group(user_groups.named("speech"))] == ["default"]


def test_pages_of_the_pool_and_the_group_show_it(busy: None) -> None:
    client = Client()
    client.force_login(
        make_user("vic", User.Role.VIEWER), backend="django.contrib.auth.backends.ModelBackend"
    )
    pool, group = (Html(client.get(path).content) for path in ("/pools/default", "/groups/speech"))
    for page, name in ((pool, "/groups/vision"), (group, "/pools/default")):
        assert f'href="{name}"' in page and 'data-label="Lent">1</td>' in page
    assert 'data-label="Borrowed">2</td>' in pool and "/usage?group=group" in group


def test_the_page_of_a_group_draws_how_it_stood(busy: None) -> None:
    pool_history.count(timezone.now())
    pool_history.count(timezone.now())
    client = Client()
    client.force_login(
        make_user("vic", User.Role.VIEWER), backend="django.contrib.auth.backends.ModelBackend"
    )
    assert 'data-figures="/groups/vision/chart?range=hour"' in Html(
        client.get("/groups/vision?range=hour").content
    )
    (figure,) = client.get("/groups/vision/chart?range=hour").json()["figures"]
    assert figure["name"] == "Slots in default"
    assert {line["name"]: line["y"][-1] for line in figure["data"]} == {
        "held": 3, "guaranteed": 1, "borrowed": 2, "lent": 0, "waiting": 1
    }  # fmt: skip


def test_usage_is_summed_up_by_group_and_department(busy: None) -> None:
    [day] = usage.sums(usage.latest("day", 1, timezone.now()))
    assert day.by_group.keys() == {"research", "vision", "speech"}
    assert day.by_group["research"] == day.by_group["vision"] > 2 * day.by_group["speech"]
