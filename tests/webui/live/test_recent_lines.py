"""Lines that all viewers of a process share: read once, encoded once, and nobody waits for a slow one."""

import asyncio
import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import redis
from django.conf import settings
from django.db import connection
from websockets.sync.client import ClientConnection, connect

from accounts.models import LoginToken
from embedded.redis import Redis
from jobs.models import Member
from logs import store
from logs.filters import Filters
from logs.lines import NewLine, blocks_of
from logs.runs import encode
from tests.rig.rows import make_gang
from tests.rig.web import Web, running_web
from webui.live.tails import FILTERS_PER_RUN, NEAR_LINES, Recent
from webui.waiting.threads import reading

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def member(db: None) -> Member:
    return make_gang()[0]


def write(member: Member, *texts: str, rank: int = 0) -> int:
    lines = [NewLine(time.time(), rank, "stdout", None, text) for text in texts]
    return store.append(member.allocation.task_id, member, member.host.name, blocks_of(lines))[1]


def recent_of(member: Member, most_bytes: int = 8 * 1024**2) -> Recent:
    return Recent(member.allocation.task_id, lambda: most_bytes)


def test_whoever_asks_for_the_same_lines_gets_the_same_run_and_rows(member: Member) -> None:
    newest = write(member, *[f"line {i}" for i in range(2500)])
    filters = Filters().searching("line 1", is_regex=False)

    async def ask() -> None:
        recent = recent_of(member)
        found = await asyncio.gather(*(recent.behind(0, newest) for _ in range(20)))
        first = found[0]
        assert first is not None and [run.upto for run in first] == [1000, 2000, 2500]
        assert all(runs is not None and [*map(id, runs)] == [*map(id, first)] for runs in found)
        pieces = await asyncio.gather(*(recent.piece(first[0], 0, filters) for _ in range(20)))
        assert all(piece.text is pieces[0].text for piece in pieces)
        assert pieces[0] == encode(first[0].lines, filters)
        rows = json.loads(f"[{pieces[0].text}]")
        assert len(rows) == pieces[0].rows and all("line 1" in row[6] for row in rows)
        # a cursor within a run gets what follows it
        assert json.loads(f"[{(await recent.piece(first[0], 990, Filters())).text}]")[0][0] == 991

    asyncio.run(ask())


def test_a_viewer_that_tries_ever_new_filters_leaves_nothing_behind(member: Member) -> None:
    newest = write(member, "a line")

    async def ask() -> None:
        recent = recent_of(member)
        [run] = await recent.behind(0, newest) or []
        for number in range(3 * FILTERS_PER_RUN):
            await recent.piece(run, 0, Filters().searching(f"line {number}", is_regex=False))
        assert len(run.pieces) == len(run.asked) == FILTERS_PER_RUN

    asyncio.run(ask())


def test_old_runs_are_let_go_and_who_is_behind_them_is_told(member: Member) -> None:
    async def ask() -> None:
        recent = recent_of(member, most_bytes=1_500_000)
        cursor = 0
        for _ in range(6):
            newest = await reading(write, member, *["x" * 200] * 1000)
            while cursor < newest:
                runs = await recent.behind(cursor, newest)
                assert runs
                cursor = runs[-1].upto
        assert recent.bytes <= 1_500_000 and recent.begin > 0 and recent.end == newest
        assert await recent.behind(0, newest) is None
        assert await recent.behind(newest, newest) == [] and recent.awaited == newest

    asyncio.run(ask())


def test_one_far_behind_does_not_begin_the_shared_lines(member: Member) -> None:
    newest = write(member, *["x"] * (NEAR_LINES + 10))

    async def ask() -> None:
        recent = recent_of(member)
        assert await recent.behind(0, newest) is None
        assert await recent.behind(100, newest)
        assert recent.begin == 100

    asyncio.run(ask())


@contextmanager
def open_log(web: Web, member: Member, **wishes: Any) -> Iterator[ClientConnection]:
    headers = {"Authorization": f"Bearer {LoginToken.issue(member.allocation.task.job.owner)}"}
    url = f"{web.socket_url}/ws/tasks/{member.allocation.task_id}/logs"
    with connect(url, additional_headers=headers, max_size=None, compression=None, max_queue=1) as socket:
        socket.send(json.dumps({"after": 0, **wishes}))
        yield socket


def rows_until(socket: ClientConnection, enough: Callable[[list[list[Any]]], bool]) -> list[list[Any]]:
    rows: list[list[Any]] = []
    until = time.monotonic() + 60
    while not enough(rows):
        rows += json.loads(socket.recv(timeout=max(0.1, until - time.monotonic()))).get("lines", [])
    return rows


def _flood(member: Member, batches: int, pause: Callable[[int], None] = lambda batch: None) -> None:
    try:
        for batch in range(batches):
            write(member, *[f"{batch}.{i} {'x' * 300}" for i in range(500)], rank=batch % 4)
            pause(batch)
    finally:
        connection.close()


@pytest.mark.survive(30)
def test_a_viewer_that_does_not_read_costs_the_others_nothing_and_misses_nothing(
    web: Web, member: Member
) -> None:
    with (
        open_log(web, member) as stuck,
        open_log(web, member) as quick,
        open_log(web, member, ranks=[2]) as one,
    ):
        writer = threading.Thread(target=_flood, args=(member, 60))
        writer.start()
        everything = rows_until(quick, lambda rows: bool(rows) and rows[-1][0] == 30_000)
        assert [row[0] for row in everything] == list(range(1, 30_001))
        of_rank = rows_until(one, lambda rows: len(rows) == 7_500)
        assert of_rank == [row for row in everything if row[2] == 2]
        writer.join()
        assert rows_until(stuck, lambda rows: bool(rows) and rows[-1][0] == 30_000) == everything


@pytest.fixture
def cut_web(redis_server: Redis, tmp_path: Path) -> Iterator[Web]:
    """A web process for itself: a thread that stores keeps a cut connection until it is used once more."""
    with running_web(tmp_path) as process:
        yield process


@pytest.mark.survive(22, 23, 30)
def test_cut_connections_of_database_and_redis_lose_and_repeat_nothing(cut_web: Web, member: Member) -> None:
    client = redis.Redis.from_url(settings.REDIS_URL)

    def cut(batch: int) -> None:
        if batch % 5 == 4:
            with connection.cursor() as cursor:
                cursor.execute(
                    "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
                    " WHERE datname = current_database() AND pid <> pg_backend_pid()"
                )
            client.client_kill_filter(_type="pubsub")

    with open_log(cut_web, member) as one, open_log(cut_web, member) as other:
        writer = threading.Thread(target=_flood, args=(member, 20, cut))
        connection.close()  # this thread's own: it would be cut, too
        writer.start()
        for socket in (one, other):
            rows = rows_until(socket, lambda rows: bool(rows) and rows[-1][0] == 10_000)
            assert [row[0] for row in rows] == list(range(1, 10_001))
        writer.join()


def test_of_many_ranks_a_frame_names_those_that_changed(web: Web, member: Member) -> None:
    for rank in range(20):
        write(member, "first", rank=rank)
    with open_log(web, member) as socket:
        frames = statuses(socket, lambda frame: bool(frame["whole"]))
        assert [entry["rank"] for entry in frames[-1]["ranks"]] == list(range(20))
        write(member, "second", rank=7)
        frames = statuses(socket, lambda frame: any(entry["lines"] == 2 for entry in frame["ranks"]))
        assert frames[-1]["whole"] or [entry["rank"] for entry in frames[-1]["ranks"]] == [7]
        frames = statuses(socket, lambda frame: bool(frame["whole"]))
        assert all(frame["ranks"] == [] for frame in frames[:-1]) and len(frames[-1]["ranks"]) == 20
        socket.send(json.dumps({"after": 21, "generation": "new"}))
        asked = statuses(socket, lambda frame: frame.get("generation") == "new")
        assert asked[-1]["whole"] and len(asked[-1]["ranks"]) == 20


def statuses(socket: ClientConnection, enough: Callable[[dict[str, Any]], bool]) -> list[dict[str, Any]]:
    """The status frames up to one that is enough."""
    found: list[dict[str, Any]] = []
    until = time.monotonic() + 60
    while not found or not enough(found[-1]):
        frame = json.loads(socket.recv(timeout=max(0.1, until - time.monotonic())))
        if "ranks" in frame:
            found.append(frame)
    return found
