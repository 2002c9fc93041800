"""The pages of a host and of the cluster: charts with units and gaps, the same in words, what ran, what stands idle."""

import json
import re
import time
from datetime import timedelta
from typing import Any

import pytest
from django.test import Client
from django.utils import timezone

from accounts.models import User
from hosts import registry
from hosts.models import Host, Slot
from jobs.models import Allocation, Member, PoolCount, SlotHold
from jobs.states import MemberState
from metrics import sample_store
from tests.rig.html import Html
from tests.rig.rows import make_command
from tests.rig.world import make_user

pytestmark = pytest.mark.django_db


def get(path: str) -> str:
    client = Client()
    client.force_login(make_user("vic", User.Role.VIEWER))
    answer = client.get(path)
    assert answer.status_code == 200, path
    return Html(answer.content)


def figures(path: str) -> dict[str, dict[str, Any]]:
    return {each["name"]: each for each in json.loads(get(path))["figures"]}


def measured(
    member: Member | None, host: Host, ago: float, seconds: int, step: int = 1, **columns: float
) -> None:
    begin = time.time() - ago
    times = [begin + second for second in range(0, seconds, step)]
    values = {name.replace("__", "/"): [value] * len(times) for name, value in columns.items()}
    record = {"t": times, "v": values}
    if member:
        sample_store.store(member.allocation.task_id, host.pk, host.name, [record])
    else:
        sample_store.store_of_hosts([(host.pk, host.name, record)])


@pytest.fixture
def member(db: None) -> Member:
    """A command that has held two GPUs of a host for half an hour."""
    task = make_command().task
    member = Member.objects.get(allocation__task=task)
    began = timezone.now() - timedelta(minutes=30)
    Allocation.objects.filter(pk=member.allocation_id).update(assigned_at=began)
    Member.objects.filter(pk=member.pk).update(state=MemberState.RUNNING, started_at=began)
    Host.objects.filter(pk=member.host_id).update(admission="ready", contact="reachable")
    for index in range(3):
        slot = Slot.objects.create(host=member.host, index=index, kind="cuda", uuid=f"GPU_{index}")
        if index < 2:
            SlotHold.objects.create(slot=slot, member=member)
    return Member.objects.select_related("host", "allocation").get(pk=member.pk)


def test_a_host_is_charted_with_units_and_gaps_and_said_in_words(member: Member) -> None:
    host, gib = member.host, 1024**3
    assert "No measurements in the last hour" in get(f"/hosts/{host.name}")
    assert figures(f"/hosts/{host.name}/chart") == {}
    measured(None, host, 3000, 600, 30, memory_free=60 * gib, gpu_util__GPU_0=0)
    measured(member, host, 1200, 300, memory_free=40 * gib, gpu_util__GPU_0=80, gpu_util__GPU_1=10)
    measured(member, host, 60, 60, gpu_util__GPU_1=0)
    found = figures(f"/hosts/{host.name}/chart?range=hour")
    assert list(found) == ["GPU utilization", "Memory available"]
    memory = found["Memory available"]
    assert memory["layout"]["yaxis"]["title"]["text"] == "GiB" and "40 GiB" in memory["described"]
    assert memory["layout"]["xaxis"]["title"]["text"].startswith("time (UTC), ")
    line = next(each for each in memory["data"] if each["name"] == "available")
    assert line["y"].count(None) == 1 and {60, 40} == set(line["y"]) - {None}
    assert {each["name"] for each in found["GPU utilization"]["data"]} >= {"GPU 0", "GPU 1"}
    page = get(f"/hosts/{host.name}?range=hour")
    row = re.search(r"<td[^>]*>GPU utilization</td><td[^>]*>GPU 0</td>(.*?)</tr>", page)
    assert row and re.findall(r">([^<]+)</td>", row[1])[1] == "0 %"
    assert "Newest sample" in page and 'data-label="In use"><span>0 %</span>' in page
    day = get(f"/hosts/{host.name}?part=measured&range=day")
    assert '<a class="pill" href="?range=day" aria-current="true"' in day and "<h1>" not in day


def test_what_ran_on_a_host_is_a_bar_on_its_slots_with_a_link(member: Member) -> None:
    name = member.host.name
    part = get(f"/hosts/{name}?part=runs&range=hour")
    bars = re.findall(r'<rect class="run living" x="([\d.]+)" y="0" width="([\d.]+)" height="28"', part)
    assert [(round(float(x), -1), round(float(width), -1)) for x, width in bars] == [(500, 500)]
    assert f'href="/commands/{member.allocation.task_id}"' in part and "slots 0-1" in part
    Member.objects.filter(pk=member.pk).update(ended_at=timezone.now() - timedelta(minutes=20))
    assert "living" not in get(f"/hosts/{name}?part=runs&range=hour")
    long_ago = timezone.now() - timedelta(hours=2)
    Member.objects.filter(pk=member.pk).update(ended_at=long_ago)
    assert "No jobs from the queue ran here" in get(f"/hosts/{name}?part=runs&range=hour")


def test_idle_gpus_are_said_where_they_are_held(member: Member) -> None:
    host, task_id = member.host, member.allocation.task_id
    Slot.objects.filter(host=host, index=1).update(idle_since=timezone.now() - timedelta(minutes=12))
    cluster = get("/cluster?part=now")
    assert f'<a href="/hosts/{host.name}">{host.name}</a> <span class="hint">slot 1</span>' in cluster
    assert "<b>1</b><span>idle GPU</span>" in cluster and "12 min" in cluster
    assert get(f"/hosts/{host.name}").count("idle for 12 min") == 1
    assert f'<a class="hint" href="/commands/{task_id}">1 idle</a>' in get(f"/jobs/{host.pool.name}")
    held = json.loads(get(f"/api/v1/hosts/{host.name}"))
    slots = held.get("host", held)["slots"]
    assert [bool(slot["heldBy"] and slot["heldBy"]["idleSince"]) for slot in slots] == [False, True, False]


def test_who_disabled_a_host_is_shown_and_is_no_failure(member: Member) -> None:
    registry.disable(member.host.pk, actor="user:ada")
    assert '<div class="banner">Disabled by ada, 20' in get(f"/hosts/{member.host.name}")
    assert '<span class="hint">Disabled by ada, 20' in get("/hosts")
    registry.enable(member.host.pk, actor="user:ada")
    assert "Disabled by" not in get(f"/hosts/{member.host.name}") + get("/hosts")


def test_the_cluster_is_counted_over_time_by_pool(member: Member) -> None:
    pool = member.host.pool
    assert "Pools are sampled once a minute" in get("/cluster") and figures("/cluster/chart") == {}
    now = timezone.now().replace(second=0, microsecond=0)
    for minute in [*range(10), *range(30, 40)]:
        PoolCount.objects.create(
            pool=pool, at=now - timedelta(minutes=minute), slots=3, usable_slots=3, used_slots=2,
            waiting_tasks=minute % 2, wanted_slots=4,
        )  # fmt: skip
    found = figures("/cluster/chart?range=hour")
    slots, queue = found["Slots in use"], found["Queue"]
    assert [each["name"] for each in slots["data"]] == [pool.name, "usable slots"]
    assert set(slots["data"][0]["y"]) == {2} and slots["layout"]["yaxis"]["title"]["text"] == "slots"
    assert slots["described"] == "Slots in use: 2 of 3 usable"
    waiting = next(each for each in queue["data"] if each["name"] == "waiting tasks")
    assert waiting["y"].count(None) == 1 and len(waiting["y"]) == 21
    page = get("/cluster?range=hour")
    assert f'<a href="/pools/{pool.name}">{pool.name}</a></td>' in page and "Last sampled" in page
    assert "<b>2 of 3</b><span>usable slots in use</span>" in page and "1 host</a>" in page
    week = figures("/cluster/chart?range=week")["Slots in use"]["data"][0]
    assert len(week["x"]) <= 4 and set(week["y"]) == {2}
