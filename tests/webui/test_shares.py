"""Fairness as numbers: what each holds, waits for and is entitled to; on the pages and over REST."""

import re

import pytest
from django.test import Client

from accounts.models import LoginToken, User
from dispatch.passes import pool_pass
from hosts.models import PoolChange, ResourcePool
from hosts.pools import default_pool
from jobs import shares
from jobs.models import Job
from shown import pools
from tests.rig.api import Api
from tests.rig.world import make_host, make_user, submit_experiment

pytestmark = pytest.mark.django_db


@pytest.fixture
def crowd(db: None) -> ResourcePool:
    """A host of 8 slots; Ada asked for 4, then Bob, then Ada for 4 more."""
    make_host("gpu1", 8)
    for name, title in (("ada", "first"), ("bob", "second"), ("ada", "third")):
        submit_experiment(slots=4, name=title, owner=make_user(name))
    return default_pool()


def planned(pool: ResourcePool, **fields: object) -> ResourcePool:
    ResourcePool.objects.filter(pk=pool.pk).update(**fields)
    PoolChange.objects.create(pool=pool)
    pool_pass.run(pool.pk)
    return default_pool()


def page(name: str, path: str) -> str:
    client = Client()
    client.force_login(make_user(name))
    answer = client.get(path)
    assert answer.status_code == 200, path
    return re.sub(r"\s+", " ", answer.content.decode())


def numbers(pool: ResourcePool) -> list[tuple[str, int, int, float | None]]:
    rows = shares.by_user(pool, pools.entitled(pool))
    return [(each.user.username, each.held, each.waiting, each.entitled) for each in rows]


def test_a_fair_share_pool_tells_what_each_is_entitled_to(crowd: ResourcePool) -> None:
    pool = planned(crowd, scheduler="fair_share")
    assert numbers(pool) == [("ada", 4, 4, 4), ("bob", 4, 0, 4)]
    total, jobs = shares.by_job(pool, pools.entitled(pool), 0, 2)
    assert total == 3 and {each.job.name for each in jobs} == {"first", "second"}
    assert [(each.held, each.waiting, each.entitled) for each in jobs] == [(4, 0, 4)] * 2


def test_a_priority_pool_has_no_shares_but_tells_who_holds_and_waits(crowd: ResourcePool) -> None:
    pool = planned(crowd)
    assert numbers(pool) == [("ada", 4, 4, None), ("bob", 4, 0, None)]
    assert "You hold 4 of 8 slots and wait for 4 more." in page("ada", "/jobs/default")
    assert "You hold 4 of 8 slots." in page("bob", "/jobs/default")
    assert "Entitled to" not in page("ada", "/pools/default")


def test_the_queue_and_the_pool_say_it_as_numbers(crowd: ResourcePool) -> None:
    planned(crowd, scheduler="fair_share")
    said = page("ada", "/jobs/default")
    assert "You hold 4 of 8 slots; your fair share is 4, and you wait for 4 more." in said
    assert "You hold 4 of 8 slots; your fair share is 4." in page("bob", "/jobs/default?part")
    assert re.search(r'id="queue-share"[^>]*></p>', page("eve", "/jobs/default")), "nothing to say to her"
    said = page("bob", "/pools/default")
    assert "Slots by user" in said and '>bob</a> <span class="hint">you</span>' in said
    assert said.count("50 %") == 2 and "/jobs/job/" in said
    assert "Slots by user" in page("eve", "/pools/default")


def test_shares_over_rest_come_with_jobs_page_by_page(crowd: ResourcePool) -> None:
    planned(crowd, scheduler="fair_share")
    api = Api(LoginToken.issue(make_user("vic", User.Role.VIEWER)))
    answer = api.get("resource-pools/default/shares?limit=1")
    assert (answer["slots"], answer["held"], answer["pagination"]["total"]) == (8, 8, 3)
    ada = User.objects.get(username="ada")
    assert answer["users"][0] == {
        "username": "ada", "userId": ada.pk, "held": 4, "waiting": 4, "entitled": 4,
    }  # fmt: skip
    (first,) = answer["jobs"]
    assert first["jobId"] in {str(pk) for pk in Job.objects.values_list("pk", flat=True)}
    assert (first["held"], first["waiting"], first["weight"]) == (4, 0, 1.0)
    planned(crowd, scheduler="priority")
    assert "entitled" not in api.get("resource-pools/default/shares")["users"][0]
    assert api.refused("GET", "resource-pools/moon/shares") == (404, "Pool moon not found")
