"""The pages of resource pools and of many hosts: who holds what, in words; filters in the address; the admin's form."""

import re
from datetime import timedelta

import pytest
from django.test import Client
from django.utils import timezone

from accounts import user_groups
from accounts.models import User
from dispatch.passes import pool_pass
from hosts import registry, slurm_nodes
from hosts.models import Host, ResourcePool
from hosts.pools import default_pool
from hosts.slurm.facts import ClusterFacts, Held, NodeFacts, UserFacts
from jobs.models import Allocation, FirstStart, Job
from jobs.states import JobState
from tests.rig.rows import make_gang
from tests.rig.world import make_host, make_project, make_user, submit_experiment

pytestmark = pytest.mark.django_db


def logged_in(role: str = User.Role.ADMIN) -> Client:
    client = Client()
    client.force_login(make_user(f"the-{role}", role))
    return client


def text(client: Client, path: str) -> str:
    answer = client.get(path)
    assert answer.status_code == 200, path
    return re.sub(r"\s+", " ", answer.content.decode())


@pytest.fixture
def world(db: None) -> Host:
    """gpu1 with 4 slots: one job on two of them, one slot used from outside, one switched off; silent gpu2."""
    make_project()
    host = make_host("gpu1", 4)
    submit_experiment(name="llama", slots=2)
    pool_pass.run(default_pool().pk)
    host.slots.filter(index=2).update(outside={"user": "root", "pid": 7, "command": "python"})
    host.slots.filter(index=3).update(enabled=False)
    silent = make_host("gpu2", 4)
    Host.objects.filter(pk=silent.pk).update(contact=Host.Contact.SILENT)
    return host


def test_a_pool_says_what_is_used_by_whom_and_why_the_rest_is_not(world: Host) -> None:
    page = text(logged_in(User.Role.VIEWER), "/pools/default")
    assert "<h1>default (priority)</h1>" in page
    assert "<b>2 / 8</b><span>slots held</span>" in page
    for words in ("2 starting or stopping", "1 used from outside the queue", "5 off"):
        assert words in page
    assert "Slot 0: llama (exp" in page
    assert "Slot 2: used outside the queue by root" in page
    assert "Slot 3: disabled" in page
    assert "Slot 0: the host is silent" in page
    assert 'href="/jobs/default">1</a></b><span>scheduled' in page
    assert "Disable gpu1" not in page, "a viewer has no buttons"


def test_a_held_slot_leads_to_its_trial_and_so_does_the_list_under_it(world: Host) -> None:
    page = text(logged_in(), "/pools/default")
    trial = Job.objects.get(name="llama").tasks.get().trial.pk
    assert page.count(f'href="/trials/{trial}"') == 3
    assert re.search(r"slots 0-1</span> <a", page)


def test_hosts_are_filtered_by_the_address(world: Host) -> None:
    client = logged_in()
    assert "gpu1" in text(client, "/hosts") and "gpu2" in text(client, "/hosts")
    for query, found, hidden in (
        ("show=silent", "gpu2", "gpu1"),
        ("show=outsiders", "gpu1", "gpu2"),
        ("show=disabled", "gpu1", "gpu2"),
        ("q=GPU2", "gpu2", "gpu1"),
        ("view=cells&show=silent", "gpu2", "gpu1"),
    ):
        page = text(client, f"/hosts?{query}")
        assert f'href="/hosts/{found}"' in page, query
        assert f'href="/hosts/{hidden}"' not in page, query
    assert "No hosts match this filter" in text(client, "/hosts?pool=moon")
    assert "gpu2: silent; 0 of 4 slots held" in text(client, "/hosts?view=cells")


def test_many_hosts_come_as_cells_and_a_list_stays_at_hand(db: None) -> None:
    for number in range(14):
        make_host(f"h{number:02}", 1)
    client = logged_in()
    assert text(client, "/hosts").count('class="cell"') == 14
    assert 'class="cell"' not in text(client, "/hosts?view=list")


def test_an_admin_makes_edits_and_removes_a_pool(db: None) -> None:
    client = logged_in()
    form = {"name": "a100", "scheduler": "fair_share", "fitting": "worst", "default_priority": "30",
            "aux_per_host": "5", "usage_half_life_seconds": "0", "spare_hosts": "0", "hang_do": "tell",
            "burn_in": "never", "burn_in_do": "tell", "priority_floor.editor": "10",
            "strict": "on"}  # fmt: skip
    assert client.post("/pools/+new", form).status_code == 302
    pool = ResourcePool.objects.get(name="a100")
    assert (pool.scheduler, pool.preemption, pool.strict) == ("fair_share", False, True)
    assert (pool.default_priority, pool.priority_floor) == (30, {"editor": 10})
    assert "editor 10" in text(client, "/pools/a100/configuration")
    assert "Created" in text(client, "/pools/a100/history")
    client.post("/pools/a100/edit", {**form, "scheduler": "priority", "longest_max_time_seconds": "86400"})
    assert "86400 s (1 d)" in text(client, "/pools/a100/configuration")
    assert "scheduler: fair_share to priority" in text(client, "/pools/a100/history")
    for typed, shown, kept in (
        ("600", "10 min", {"1": 600}),
        ("1=1800 50=60", "30 min from priority 1, 60 s from priority 50", {"1": 1800, "50": 60}),
        ("", "no time", {}),
    ):
        client.post("/pools/a100/edit", {**form, "scheduler": "priority", "min_runtime_seconds": typed})
        assert ResourcePool.objects.get(name="a100").min_runtime_seconds == kept
        assert f"<dd>{shown}</dd>" in text(client, "/pools/a100/configuration")
        assert f'value="{typed}"' in text(client, "/pools/a100/edit") or not typed
    wrong = client.post("/pools/a100/edit", {**form, "min_runtime_seconds": "10m"})
    assert (
        "Found {&#x27;1&#x27;: &#x27;10m&#x27;}; allowed: seconds from a priority" in wrong.content.decode()
    )
    user_groups.create("vision", actor="user:root")
    make_host("gpu1", 8, pool)
    shares = {"vision": {"guarantee": 4, "limit": 6, "weight": 2}}
    client.post("/pools/a100/edit", {**form, "group_shares": "vision=guarantee:4,limit:6,weight:2"})
    assert ResourcePool.objects.get(name="a100").group_shares == shares
    assert "vision: guarantee:4, limit:6, weight:2" in text(client, "/pools/a100/configuration")
    assert "vision=guarantee:4,limit:6,weight:2" in text(client, "/pools/a100/edit")
    client.post("/pools/a100/edit", {**form, "open_to": "group:vision workspace:1"})
    assert ResourcePool.objects.get(name="a100").open_to == {"groups": ["vision"], "workspaces": [1]}
    assert "<dd>group:vision workspace:1</dd>" in text(client, "/pools/a100/configuration")
    wrong = client.post("/pools/a100/edit", {**form, "open_to": "vision"})
    assert "allowed: group:NAME or workspace:NUMBER" in wrong.content.decode()
    for typed, why in (("vision=guarantee:9", "the pool has 8"), ("vision=4", "allowed: GROUP=guarantee:N")):
        answer = client.post("/pools/a100/edit", {**form, "group_shares": typed})
        assert answer.status_code == 400 and why in answer.content.decode()
    Host.objects.all().delete()
    client.post("/pools/a100/remove")
    assert client.get("/pools/a100").status_code == 404


def test_a_wrong_field_is_told_beside_it_and_what_was_typed_stays(db: None) -> None:
    client = logged_in()
    answer = client.post("/pools/+new", {"name": "a b", "scheduler": "priority", "fitting": "best",
                                         "default_priority": "1.5", "aux_per_host": "100",
                                         "usage_half_life_seconds": "0", "spare_hosts": "0", "hang_do": "tell",
                                         "burn_in": "never", "burn_in_do": "tell"})  # fmt: skip
    page = re.sub(r"\s+", " ", answer.content.decode())
    assert answer.status_code == 400
    assert "Nothing was changed: 2 fields have errors." in page
    assert 'value="1.5"' in page and 'value="a b"' in page
    assert "Found &#x27;1.5&#x27;; allowed: a whole number from 1 to 99." in page
    assert not ResourcePool.objects.filter(name="a b").exists()


def test_only_an_admin_gets_the_form(db: None) -> None:
    default_pool()
    client = logged_in(User.Role.EDITOR)
    assert client.get("/pools/+new").status_code == 302
    client.post("/pools/default/edit", {"scheduler": "fair_share"})
    client.post("/pools/default/remove")
    assert ResourcePool.objects.get().scheduler == "priority"


def test_a_pool_in_use_stays_and_the_page_says_why(world: Host) -> None:
    client = logged_in()
    answer = client.post("/pools/default/remove", follow=True)
    assert "it has gpu1, gpu2" in answer.content.decode()


def test_a_host_moves_when_nothing_runs_there(world: Host) -> None:
    client = logged_in()
    other = ResourcePool.objects.create(name="other")
    refused = client.post("/hosts/gpu1/edit", {"pool": "other"}).content.decode()
    assert "cannot be moved to another pool while it runs" in refused
    client.post("/hosts/gpu2/edit", {"pool": "other"})
    assert Host.objects.get(name="gpu2").pool == other
    assert "Moved to another resource pool (default to other)" in text(client, "/hosts/gpu2")


def test_one_slot_is_drained_disabled_and_enabled_from_the_page(world: Host) -> None:
    client = logged_in()
    allocation = Allocation.objects.get()
    slot = world.slots.get(index=0)
    client.post("/hosts/gpu1/slots/0/drain")
    slot.refresh_from_db()
    assert (slot.enabled, slot.draining) == (True, True)
    allocation.refresh_from_db()
    assert allocation.stop_kind == ""
    back = client.post("/hosts/gpu1/slots/0/disable", {"back": "/pools/default"})
    assert back["Location"] == "/pools/default"
    allocation.refresh_from_db()
    assert allocation.stop_kind == "STOP"
    assert "Slot disabled (slot 0)" in text(client, "/hosts/gpu1")
    assert client.post("/hosts/gpu1/slots/9/enable").status_code == 404
    away = client.post("/hosts/gpu1/slots/0/enable", {"back": "//elsewhere"})
    assert away["Location"] == "/hosts/gpu1"


def test_the_queued_time_is_shown_by_day(world: Host) -> None:
    client = logged_in()
    FirstStart.objects.update(submitted_at=timezone.now() - timedelta(hours=1), at=timezone.now())
    [figure] = client.get("/pools/default/chart?days=30").json()["figures"]
    assert len(figure["data"][0]["x"]) == 30
    assert sum(value is not None for value in figure["data"][0]["y"]) == 1
    page = text(client, "/pools/default/stats")
    assert "1 h" in page and page.count('<td class="mono">') == 7


def test_work_of_another_kind_is_named_too(db: None) -> None:
    [member] = make_gang()
    registry.present().filter(pk=member.host_id).update(admission="ready", contact="reachable")
    member.slots = 0
    member.save()
    pool = member.allocation.pool
    page = text(logged_in(), f"/pools/{pool.name}")
    assert "no slot" in page and f"/commands/{member.allocation.task_id}" in page
    assert "<b>1 / 100</b><span>runs without slots" in page
    assert Job.objects.get().state == JobState.ACTIVE


@pytest.mark.django_db
def test_what_was_in_a_pool_is_still_shown_when_the_pool_is_removed() -> None:
    make_project()
    experiment = submit_experiment()
    pool = ResourcePool.objects.create(name="former", removed=True)
    Job.objects.update(pool=pool)
    client = Client()
    client.force_login(User.objects.create(username="vic", role=User.Role.VIEWER))
    assert client.get(f"/experiments/{experiment.pk}").status_code == 200


def test_a_slurm_pool_is_created_by_the_form_and_shows_its_cluster() -> None:
    client = logged_in()
    given = {
        "name": "stars",
        "scheduler": "priority",
        "fitting": "best",
        "default_priority": "42",
        "aux_per_host": "9",
        "hang_do": "tell",
        "spare_hosts": "0",
        "burn_in": "never",
        "burn_in_do": "tell",
    }
    given |= {"usage_half_life_seconds": "0", "slurm": "login=10.0.0.2,partition=gpu"}
    answer = client.post("/pools/+new", {**given, "slurm": "partition=gpu"})
    assert answer.status_code == 400 and "login is required" in answer.content.decode()
    answer = client.post("/pools/+new", given)
    assert answer.status_code == 302 and answer["Location"] == "/hosts/stars-login/adding"
    assert "stars-login" in text(client, "/hosts/stars-login/adding")
    pool = ResourcePool.objects.get(name="stars")
    assert slurm_nodes.login_of(pool).workdir == "~/.trainmaster/slurm/stars"
    node = NodeFacts("g1", "DOWN+DRAIN", False, "g1", 64, 1000, {}, 4, "bad <riser>", [Held("bob", "7", 3)])
    told = ClusterFacts("22.05.8", "stars", True, "gpu", "UP", None, 30, [node], [UserFacts("bob", 1, 2, 3)])
    slurm_nodes.took_in(pool, slurm_nodes.login_of(pool), told)
    slurm_nodes.not_read(pool, "The cluster has no partition 'gpu'; it has: none.")
    page = text(client, "/pools/stars")
    for words in (
        "stars, Slurm 22.05.8",
        "0 of 1 take jobs",
        "(1 DOWN+DRAIN)",
        "hold 3 slots here",
        "bad &lt;riser&gt;",
    ):
        assert words in page, words
    assert "trainmaster host add" not in page
    assert "login=10.0.0.2,partition=gpu" in text(client, "/pools/stars/configuration")
    assert "node g1 of Slurm" in text(client, "/hosts/g1@stars")
    assert "runs no jobs" in text(client, "/hosts/stars-login")
