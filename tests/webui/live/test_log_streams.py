"""The dialect's log streams over HTTP, against a real web process."""

import json
import threading
import time
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from django.db import connection

from accounts.models import LoginToken
from jobs.models import Member, Task
from jobs.states import TaskState
from logs import store
from logs.lines import NewLine, blocks_of
from tests.rig.rows import RUN_TOKEN, make_gang
from tests.rig.web import Web

pytestmark = pytest.mark.django_db(transaction=True)

Record = dict[str, Any]


@pytest.fixture
def gang(db: None) -> list[Member]:
    return make_gang(2)


@pytest.fixture
def api(web: Web, gang: list[Member]) -> Iterator[httpx.Client]:
    token = LoginToken.issue(gang[0].allocation.task.job.owner)
    task_id = gang[0].allocation.task_id
    headers = {"Authorization": f"Bearer {token}"}
    with httpx.Client(base_url=f"{web.url}/api/v1/tasks/{task_id}", headers=headers, timeout=60) as client:
        yield client


def write(
    member: Member, *texts: str, rank: int | None = 0, level: str | None = None, at: float = 0.0
) -> None:
    lines = [NewLine(at or time.time(), rank, "stdout", level, text) for text in texts]
    store.append(member.allocation.task_id, member, member.host.name, blocks_of(lines))


def records(answer: httpx.Response) -> list[Record]:
    assert answer.status_code == 200, answer.text
    return [json.loads(line)["result"] for line in answer.text.splitlines()]


def test_a_record_has_the_dialects_fields(api: httpx.Client, gang: list[Member]) -> None:
    write(gang[1], "hello", rank=3, level="WARNING", at=1_700_000_000.25)
    member = gang[1]
    assert records(api.get("/logs")) == [
        {
            "taskId": member.allocation.task_id,
            "id": "1",
            "timestamp": "2023-11-14T22:13:20.250000Z",
            "level": "LOG_LEVEL_WARNING",
            "message": f"[2023-11-14T22:13:20.250000Z] {member.host.name} [rank=3] || WARNING: hello\n",
            "log": "hello",
            "source": "task",
            "stdtype": "stdout",
            "agentId": member.host.name,
            "rankId": 3,
            "allocationId": member.allocation_id,
            "containerId": member.run_key,
        }
    ]


def test_limits_orders_and_filters(api: httpx.Client, gang: list[Member]) -> None:
    for i in range(3):
        write(gang[0], *[f"a {i}.{j}" for j in range(900)], rank=0, at=1000.0 + i)
        write(gang[1], *[f"b {i}.{j}" for j in range(100)], rank=None, level="ERROR", at=1000.0 + i)

    def ids(**query: Any) -> list[int]:
        return [int(record["id"]) for record in records(api.get("/logs", params=query))]

    assert ids() == list(range(1, 3001))
    assert ids(limit=5) == [1, 2, 3, 4, 5]
    assert ids(orderBy="ORDER_BY_DESC", limit=1500) == list(range(3000, 1500, -1))
    assert ids(orderBy="ORDER_BY_DESC") == list(range(3000, 0, -1))
    assert ids(after=2990) == list(range(2991, 3001))
    assert len(ids(rankIds=-1)) == 300 and len(ids(rankIds=[-1, 0])) == 3000
    assert len(ids(levels="LOG_LEVEL_ERROR")) == 300
    assert len(ids(agentIds=gang[0].host.name)) == 2700
    assert len(ids(containerIds=gang[1].run_key)) == 300 and ids(containerIds="no.such.run") == []
    assert len(ids(allocationIds=gang[0].allocation_id)) == 3000
    assert ids(stdtypes="stderr") == [] and ids(sources="master") == [] and len(ids(sources="task")) == 3000
    assert ids(
        timestampAfter="1970-01-01T00:16:40Z", timestampBefore="1970-01-01T00:16:41Z", rankIds=-1
    ) == list(range(1901, 2001))
    assert ids(searchText="B 1.99") == [2000] and ids(searchText="^a 2.(7)$", enableRegex="true") == [2008]


@pytest.mark.parametrize(
    ("query", "sentence"),
    [
        ({"limit": 5, "follow": "true"}, "Limit cannot be specified when following"),
        ({"limit": -1}, "limit is '-1'"),
        ({"rankIds": "x"}, "-1 means lines without a rank"),
        ({"levels": "LOUD"}, "allowed: UNSPECIFIED"),
        ({"orderBy": "SIDEWAYS"}, "allowed: ORDER_BY_ASC"),
        ({"timestampAfter": "yesterday"}, "RFC 3339"),
        ({"timestampAfter": "2026-02-31T00:00:00Z"}, "RFC 3339"),
        ({"searchText": "(", "enableRegex": "true"}, "not a regular expression"),
        ({"follow": "maybe"}, "allowed: true or false"),
    ],
)
def test_a_wrong_query_is_a_sentence(api: httpx.Client, query: dict[str, Any], sentence: str) -> None:
    answer = api.get("/logs", params=query)
    assert answer.status_code == 400 and sentence in answer.json()["message"]


def test_a_pattern_that_explodes_is_the_streams_last_line(api: httpx.Client, gang: list[Member]) -> None:
    write(gang[0], "a" * 5000 + "b" * 5000 + "!")
    answer = api.get("/logs", params={"searchText": "^(a+|b+|(ab|a|b)+)+$", "enableRegex": "true"})
    assert "nested repeats" in json.loads(answer.text.splitlines()[-1])["error"]["error"]


def test_a_followed_stream_ends_with_the_task(api: httpx.Client, gang: list[Member]) -> None:
    write(gang[0], "before")
    seen: list[str] = []
    first = threading.Event()

    def follow() -> None:
        with api.stream("GET", "/logs", params={"follow": "true"}) as answer:
            for line in answer.iter_lines():
                seen.append(json.loads(line)["result"]["log"])
                first.set()

    follower = threading.Thread(target=follow)
    follower.start()
    assert first.wait(60)
    write(gang[1], "while it is followed")
    Task.objects.filter(pk=gang[0].allocation.task_id).update(state=TaskState.ENDED)
    connection.close()
    follower.join(60)
    assert not follower.is_alive() and seen == ["before", "while it is followed"]


def test_followers_that_wait_hold_no_thread(api: httpx.Client, web: Web, gang: list[Member]) -> None:
    from tests.webui.runner_api.test_streams import thread_count

    write(gang[0], "one")
    before = thread_count(web.pid)
    streams = [api.stream("GET", "/logs", params={"follow": "true"}) for _ in range(40)]
    try:
        for stream in streams:
            assert next(stream.__enter__().iter_lines())
        until = time.monotonic() + 60
        while thread_count(web.pid) > before + 20 and time.monotonic() < until:
            time.sleep(0.05)
        assert thread_count(web.pid) <= before + 20
    finally:
        for stream in streams:
            stream.__exit__(None, None, None)


def test_fields_say_what_there_is_to_choose_from(api: httpx.Client, gang: list[Member]) -> None:
    write(gang[0], "x", rank=1)
    write(gang[1], "x", rank=None)
    assert records(api.get("/logs/fields")) == [
        {
            "agentIds": sorted([gang[0].host.name, gang[1].host.name]),
            "containerIds": [gang[0].run_key, gang[1].run_key],
            "rankIds": [-1, 1],
            "sources": ["task"],
            "stdtypes": ["stdout"],
            "allocationIds": [gang[0].allocation_id],
        }
    ]


def test_raw_is_the_exact_bytes(api: httpx.Client, gang: list[Member]) -> None:
    write(gang[0], "\udcff\x00", "é", rank=1)
    write(gang[0], "other", rank=2)
    assert api.get("/logs/raw", params={"rankIds": 1}).content == b"\xff\x00\n\xc3\xa9\n"


def test_logs_need_a_login_and_a_run_reads_its_own_alone(
    web: Web, api: httpx.Client, gang: list[Member]
) -> None:
    other = make_gang(token="another")[0]
    own = {"Authorization": f"Bearer {RUN_TOKEN}"}
    url = f"{web.url}/api/v1/tasks"
    assert httpx.get(f"{url}/{other.allocation.task_id}/logs").status_code == 401
    assert httpx.get(f"{url}/{other.allocation.task_id}/logs", headers=own).status_code == 404
    assert httpx.get(f"{url}/{gang[0].allocation.task_id}/logs", headers=own).status_code == 200
    assert api.get(f"{url}/no-such-task/logs").status_code == 404
    assert api.get(f"{web.url}/api/v1/trials/999999/logs").status_code == 404
