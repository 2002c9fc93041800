"""Reads of a log over REST, against a real web process: what is refused, chosen by rank, and downloaded."""

from __future__ import annotations

import asyncio
import io
import json
import threading
import time
import zipfile
from collections.abc import Iterator

import httpx
import pytest
from asgiref.sync import sync_to_async
from django.db import connections
from django.test import AsyncClient

from accounts.models import LoginToken
from jobs.models import Member
from logs import store
from logs.lines import NewLine, blocks_of
from shown.log_archive import RANKS_TOGETHER
from tests.rig.rows import make_gang
from tests.rig.web import Web
from webui.waiting.threads import reading

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def gang(db: None) -> list[Member]:
    return make_gang(2)


@pytest.fixture
def api(web: Web, gang: list[Member]) -> Iterator[httpx.Client]:
    token = LoginToken.issue(gang[0].allocation.task.job.owner)
    url = f"{web.url}/api/v1/tasks/{gang[0].allocation.task_id}"
    with httpx.Client(base_url=url, headers={"Authorization": f"Bearer {token}"}, timeout=60) as client:
        yield client


def write(member: Member | None, task_id: str, *lines: NewLine) -> None:
    store.append(task_id, member, member.host.name if member else "", blocks_of(lines))


def line(
    text: str, rank: int | None = 0, stream: str = "stdout", cut: bool = False, at: float = 0.0
) -> NewLine:
    return NewLine(at or time.time(), rank, stream, None, text, cut)


def texts(answer: httpx.Response) -> list[str]:
    assert answer.status_code == 200, answer.text
    return [json.loads(row)["result"]["log"] for row in answer.text.splitlines()]


@pytest.mark.parametrize("path", ["/logs", "/logs/raw", "/logs/archive"])
@pytest.mark.parametrize(
    ("query", "sentence"),
    [
        ("rankIds=²", "'²' is not a rank expression"),
        ("rankIds=٣", "'٣' is not a rank expression"),
        ("rankIds=--5", "'--5' is not a rank expression"),
        ("rankIds=7-3", "write 3-7"),
        ("rankId=3", "There is no parameter 'rankId'; allowed: a"),
        ("stdtypes=stdin", "allowed: stdout, stderr"),
        ("sources=me", "allowed: task, master, agent"),
        ("streams=o", "allowed: stdout, stderr, server"),
        ("levels=LOUD", "allowed: UNSPECIFIED"),
        ("agentIds=a%00b", "agentIds holds"),
        ("allocationIds=%ED%A0%80%00", "allocationIds holds"),
        ("containerIds=" + "x" * 300, "up to 256 characters"),
        ("timestampBefore=2h", "RFC 3339"),
        ("enableRegex=yes", "allowed: true or false"),
        ("searchText=(&enableRegex=1", "not a regular expression"),
    ],
)
def test_a_wrong_filter_is_refused_with_a_sentence(
    api: httpx.Client, path: str, query: str, sentence: str
) -> None:
    answer = api.get(f"{path}?{query}")
    assert answer.status_code == 400
    assert sentence in answer.json()["message"]


@pytest.mark.parametrize(
    ("query", "sentence"),
    [
        ("limit=²", "limit is '²'"),
        ("limit=1e3", "limit is '1e3'"),
        ("after=-1", "after is '-1'"),
        ("limit=99999999999999999999", "limit is '99999999999999999999'"),
        ("follow=true&orderBy=ORDER_BY_DESC", "new lines come last"),
    ],
)
def test_a_wrong_cursor_is_refused_with_a_sentence(api: httpx.Client, query: str, sentence: str) -> None:
    answer = api.get(f"/logs?{query}")
    assert answer.status_code == 400
    assert sentence in answer.json()["message"]


def test_a_task_that_cannot_exist_is_not_found(api: httpx.Client, web: Web) -> None:
    for path in ("tasks/%00/logs", "tasks/a%00b/logs/raw", "trials/99999999999999999999/logs"):
        assert api.get(f"{web.url}/api/v1/{path}").status_code == 404, path
    assert api.get("/logs/fields?follow=maybe").status_code == 400


def test_ranks_are_chosen_by_expressions(api: httpx.Client, gang: list[Member]) -> None:
    task = gang[0].allocation.task_id
    for rank in range(4):
        write(gang[rank // 2], task, line(f"rank {rank}", rank))
    write(gang[0], task, line("launcher", None))
    write(None, task, line("server", None, "server"))

    def ranks(*asked: str) -> list[str]:
        return texts(api.get("/logs", params={"rankIds": list(asked), "sources": "task"}))

    assert ranks("1-2") == ["rank 1", "rank 2"]
    assert ranks("0-3,!1") == ["rank 0", "rank 2", "rank 3"]
    assert ranks("0", "3") == ["rank 0", "rank 3"]
    assert ranks(f"host:{gang[1].host.name}") == ["rank 2", "rank 3"]
    assert ranks("-1") == ["launcher"]
    assert ranks("9") == ranks("-2") == ranks("99999") == []
    assert texts(api.get("/logs?rank_ids=1&sources=task")) == ["rank 1"], "as Determined's gateway takes it"
    assert ranks("host:elsewhere") == []
    assert texts(api.get("/logs?streams=server")) == ["server"]
    assert "server" not in texts(api.get("/logs?streams=stdout&streams=stderr"))


def test_filters_are_offered_only_for_streams_that_have_lines(api: httpx.Client, gang: list[Member]) -> None:
    task = gang[0].allocation.task_id

    def offered() -> tuple[list[str], list[str]]:
        fields = json.loads(api.get("/logs/fields").text)["result"]
        return fields["sources"], fields["stdtypes"]

    write(gang[0], task, line("out"))
    before = offered()
    write(gang[0], task, line("err", stream="stderr"))
    assert (before[0][-1], before[1], offered()[1]) == ("task", ["stdout"], ["stderr", "stdout"])


def test_a_follower_sees_a_rank_of_its_host_that_appears_later(api: httpx.Client, gang: list[Member]) -> None:
    task, host = gang[0].allocation.task_id, gang[1].host.name
    write(gang[0], task, line("elsewhere", 0))
    with api.stream("GET", "/logs", params={"follow": "true", "rankIds": f"host:{host}"}) as answer:
        write(gang[1], task, line("the first of rank 1", 1))
        found = json.loads(next(answer.iter_lines()))
    assert found["result"]["log"] == "the first of rank 1"


def test_a_line_that_was_cut_is_whole_again(api: httpx.Client, gang: list[Member]) -> None:
    task = gang[0].allocation.task_id
    write(gang[0], task, line("begin ", 0, cut=True))
    write(gang[1], task, line("between", 1))
    write(gang[0], task, line("middle ", 0, cut=True), line("end", 0), line("after", 0))
    assert api.get("/logs/raw").content == b"between\nbegin middle end\nafter\n"
    assert api.get("/logs/raw?rankIds=0").content == b"begin middle end\nafter\n"
    records = [json.loads(row)["result"] for row in api.get("/logs?rankIds=0").text.splitlines()]
    assert [record.get("continues", False) for record in records] == [True, True, False, False]


def test_a_download_names_its_file(api: httpx.Client, gang: list[Member]) -> None:
    task = gang[0].allocation.task_id
    write(gang[0], task, line("x"))
    for path, ending in (("raw", "txt"), ("archive", "zip")):
        answer = api.get(f"/logs/{path}")
        assert answer.headers["content-disposition"] == f'attachment; filename="task_{task}_logs.{ending}"'
        assert answer.headers["x-content-type-options"] == "nosniff"


def entries(answer: httpx.Response) -> dict[str, bytes]:
    assert answer.status_code == 200, answer.text
    with zipfile.ZipFile(io.BytesIO(answer.content)) as archive:
        assert archive.testzip() is None
        return {name.split("/", 1)[1]: archive.read(name) for name in archive.namelist()}


def test_an_archive_has_a_file_for_each_rank_and_stream(api: httpx.Client, gang: list[Member]) -> None:
    task = gang[0].allocation.task_id
    write(gang[0], task, line("\udcff\x00 out"), line("err", stream="stderr"), line("long ", cut=True))
    write(gang[1], task, line("é", 1), line("launcher", None, "stderr"))
    write(gang[0], task, line("line"))
    write(None, task, NewLine(1_700_000_000.0, None, "server", "INFO", "Run 1 has started."))
    assert entries(api.get("/logs/archive")) == {
        "rank0.stdout.log": b"\xff\x00 out\nlong line\n",
        "rank0.stderr.log": b"err\n",
        "rank1.stdout.log": "é\n".encode(),
        "no-rank.stderr.log": b"launcher\n",
        "server.log": b"[2023-11-14T22:13:20Z] INFO: Run 1 has started.\n",
    }
    assert list(entries(api.get("/logs/archive?rankIds=1"))) == ["rank1.stdout.log"]
    assert list(entries(api.get("/logs/archive?stdtypes=stderr&rankIds=0-5"))) == ["rank0.stderr.log"]
    assert entries(api.get("/logs/archive?rankIds=host:elsewhere")) == {}


def test_an_archive_of_many_lines_is_complete(api: httpx.Client, gang: list[Member]) -> None:
    task, lines = gang[0].allocation.task_id, 12_000
    for start in range(0, lines, 1000):
        for rank in range(3):
            numbers = range(start, start + 1000)
            write(gang[0], task, *(line(f"{n}", rank, "stderr" if n % 2 else "stdout") for n in numbers))
    files = entries(api.get("/logs/archive"))
    assert len(files) == 6
    for rank in range(3):
        even, odd = files[f"rank{rank}.stdout.log"].split(), files[f"rank{rank}.stderr.log"].split()
        assert [int(n) for n in even] == list(range(0, lines, 2))
        assert [int(n) for n in odd] == list(range(1, lines, 2))


@pytest.mark.parametrize("path", ["/logs/raw", "/logs/archive"])
def test_a_download_that_fails_on_the_way_does_not_look_complete(
    api: httpx.Client, gang: list[Member], path: str
) -> None:
    write(gang[0], gang[0].allocation.task_id, line("a" * 5000 + "b" * 5000 + "!"))
    with pytest.raises(httpx.RemoteProtocolError):
        api.get(path, params={"searchText": "^(a+|b+|(ab|a|b)+)+$", "enableRegex": "true"})


def test_an_archive_of_more_ranks_than_one_pass_serves_is_complete(
    api: httpx.Client, gang: list[Member]
) -> None:
    task, ranks = gang[0].allocation.task_id, 2 * RANKS_TOGETHER + 3
    for part in range(2):
        streams = [(rank, stream) for rank in range(ranks) for stream in ("stdout", "stderr")]
        write(gang[0], task, *(line(f"{rank} {part}", rank, stream) for rank, stream in streams))
    files = entries(api.get("/logs/archive"))
    assert list(files) == [f"rank{rank}.{name}.log" for rank in range(ranks) for name in ("stdout", "stderr")]
    assert all(files[f"rank{rank}.stderr.log"] == f"{rank} 0\n{rank} 1\n".encode() for rank in range(ranks))


@pytest.mark.parametrize(
    ("path", "query"),
    [
        ("logs", {"searchText": "needle"}),
        ("logs", {"searchText": "need.e", "enableRegex": "true", "orderBy": "ORDER_BY_DESC"}),
        ("logs/raw", {}),
        ("logs/archive", {}),
    ],
)
def test_searches_and_downloads_take_no_thread_of_those_who_look(
    gang: list[Member], path: str, query: dict[str, str]
) -> None:
    task = gang[0].allocation.task_id
    write(gang[0], task, line("needle"))
    token = LoginToken.issue(gang[0].allocation.task.job.owner)

    async def ask() -> bytes:
        headers = {"Authorization": f"Bearer {token}"}
        answer = await AsyncClient().get(f"/api/v1/tasks/{task}/{path}", query, headers=headers)
        over = threading.Event()
        looks = [asyncio.create_task(reading(over.wait)) for _ in range(30)]
        await asyncio.sleep(0)  # so that they have all the threads
        try:
            async with asyncio.timeout(20):
                return b"".join([part async for part in answer.streaming_content])
        finally:
            over.set()
            await asyncio.gather(*looks)
            await sync_to_async(connections.close_all)()  # the client's thread keeps its own

    found = asyncio.run(ask())
    assert b"needle" in found or path == "logs/archive"
