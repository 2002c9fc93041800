"""The log's socket, against a real web process, PostgreSQL and Redis."""

import json
import re
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest
from django.conf import settings
from django.contrib.auth import BACKEND_SESSION_KEY, HASH_SESSION_KEY, SESSION_KEY
from django.contrib.sessions.backends.db import SessionStore
from django.db import connection
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.sync.client import ClientConnection, connect

from accounts.models import LoginToken, User
from embedded.redis import Redis
from jobs.models import Member, Task
from jobs.states import TaskState
from logs import store
from logs.lines import NewLine, blocks_of
from tests.rig.rows import make_gang
from tests.rig.web import Web

pytestmark = pytest.mark.django_db(transaction=True)

Frame = dict[str, Any]


@pytest.fixture
def member(db: None) -> Member:
    return make_gang()[0]


def write(member: Member, *texts: str, rank: int | None = 0, level: str | None = None) -> int:
    lines = [NewLine(time.time(), rank, "stdout", level, text) for text in texts]
    return store.append(member.allocation.task_id, member, member.host.name, blocks_of(lines))[1]


def open_log(web: Web, member: Member, **options: Any) -> ClientConnection:
    headers = {"Authorization": f"Bearer {LoginToken.issue(member.allocation.task.job.owner)}"}
    url = f"{web.socket_url}/ws/tasks/{member.allocation.task_id}/logs"
    return connect(url, additional_headers=headers, max_size=8 * 1024**2, **options)


def frames_until(
    socket: ClientConnection, enough: Callable[[list[Frame]], bool], seconds: float = 60
) -> list[Frame]:
    """The frames that come until there are enough of them."""
    frames: list[Frame] = []
    until = time.monotonic() + seconds
    while not enough(frames):
        left = until - time.monotonic()
        assert left > 0, f"not enough within {seconds} s: {frames[-3:]}"
        frames.append(json.loads(socket.recv(timeout=left)))
    return frames


def texts(frames: list[Frame]) -> list[str]:
    return [row[6] for frame in frames for row in frame.get("lines", [])]


def numbers(frames: list[Frame]) -> list[int]:
    return [row[0] for frame in frames for row in frame.get("lines", [])]


@pytest.mark.survive(30)
def test_history_and_live_join_without_gap_or_repeat(web: Web, member: Member) -> None:
    write(member, *[f"old {i}" for i in range(2500)])
    with open_log(web, member) as socket:
        socket.send(json.dumps({"after": 1000, "generation": 1}))
        writer = threading.Thread(target=_write_and_close, args=(member, 30))
        writer.start()
        frames = frames_until(socket, lambda seen: len(numbers(seen)) >= 1500 + 300)
        writer.join()
    assert numbers(frames) == list(range(1001, 2801))
    assert all(frame["generation"] == 1 for frame in frames if "lines" in frame)
    assert max(len(frame.get("lines", [])) for frame in frames) <= 1000


def _write_and_close(member: Member, batches: int) -> None:
    try:
        for batch in range(batches):
            write(member, *[f"new {batch}.{i}" for i in range(10)])
    finally:
        connection.close()


def test_each_viewer_sees_what_its_own_filters_leave(web: Web, member: Member) -> None:
    with open_log(web, member) as all_of_it, open_log(web, member) as rank_2:
        all_of_it.send(json.dumps({"after": 0}))
        rank_2.send(json.dumps({"after": 0, "ranks": [2], "generation": "a"}))
        write(member, "zero", rank=0)
        write(member, "two", rank=2, level="ERROR")
        write(member, "two again", rank=2)
        assert texts(frames_until(all_of_it, lambda seen: len(texts(seen)) == 3)) == [
            "zero",
            "two",
            "two again",
        ]
        assert texts(frames_until(rank_2, lambda seen: len(texts(seen)) == 2)) == ["two", "two again"]
        rank_2.send(json.dumps({"after": 0, "levels": ["ERROR"], "generation": "b"}))
        frames = frames_until(rank_2, lambda seen: "two" in texts(seen))
        assert texts([frame for frame in frames if frame.get("generation") == "b"]) == ["two"]
        rank_2.send(json.dumps({"after": 0, "search": "AGAIN"}))
        assert texts(frames_until(rank_2, lambda seen: bool(texts(seen)))) == ["two again"]
        rank_2.send(json.dumps({"after": 0, "search": "^z.*o$", "regex": True}))
        assert texts(frames_until(rank_2, lambda seen: bool(texts(seen)))) == ["zero"]


def test_ranks_are_told_with_the_age_of_their_last_line(web: Web, member: Member) -> None:
    write(member, "a", rank=3)
    write(member, "b", rank=None)
    with open_log(web, member) as socket:
        frames = frames_until(socket, lambda seen: any(frame.get("ranks") for frame in seen))
        ranks = frames[-1]["ranks"]
        assert [(rank["rank"], rank["lines"], rank["host"]) for rank in ranks] == [
            (-1, 1, member.host.name),
            (3, 1, member.host.name),
        ]
        assert 0 <= ranks[1]["age"] < 20
        write(member, "c", rank=4)
        later = frames_until(socket, lambda seen: len(seen[-1].get("ranks", [])) == 3 if seen else False)
        assert later[-1]["ranks"][2]["rank"] == 4


def test_the_last_frame_says_that_nothing_follows(web: Web, member: Member) -> None:
    write(member, "only")
    with open_log(web, member) as socket:
        socket.send(json.dumps({"after": 0}))
        assert texts(frames_until(socket, lambda seen: bool(texts(seen)))) == ["only"]
        Task.objects.filter(pk=member.allocation.task_id).update(state=TaskState.ENDED)
        frames = frames_until(
            socket, lambda seen: any(frame.get("last") and "lines" in frame for frame in seen)
        )
        assert frames[-1]["lines"] == [] and frames[-1]["upto"] == 1


@pytest.mark.parametrize(
    ("frame", "sentence"),
    [
        ("no json", "not JSON"),
        ("[]", "not a JSON object"),
        ('{"after": -1}', "number of a line"),
        ('{"ranks": ["1"]}', "list of numbers"),
        ('{"ranks": [-2]}', "-1"),
        ('{"hosts": ["\\u0000"]}', "host names"),
        ('{"hosts": ["\\ud800"]}', "host names"),
        ('{"levels": ["LOUD"]}', "unknown; allowed"),
        ('{"streams": ["x"]}', "allowed: stdout"),
        ('{"search": "(", "regex": true}', "not a regular expression"),
        ('{"after_time": "now"}', "seconds since 1970"),
    ],
)
def test_a_bad_frame_gets_a_sentence_and_the_socket_stays(
    web: Web, member: Member, frame: str, sentence: str
) -> None:
    write(member, "line")
    with open_log(web, member) as socket:
        socket.send(frame)
        answers = frames_until(socket, lambda seen: any("error" in frame for frame in seen))
        assert sentence in answers[-1]["error"]
        socket.send(json.dumps({"after": 0}))
        assert texts(frames_until(socket, lambda seen: bool(texts(seen)))) == ["line"]


def test_a_pattern_that_explodes_ends_in_a_sentence(web: Web, member: Member) -> None:
    write(member, "a" * 5000 + "b" * 5000 + "!")
    with open_log(web, member) as socket:
        socket.send(json.dumps({"after": 0, "search": "^(a+|b+|(ab|a|b)+)+$", "regex": True}))
        answers = frames_until(socket, lambda seen: any("error" in frame for frame in seen))
        assert "nested repeats" in answers[-1]["error"]


@pytest.mark.survive(29)
def test_what_no_browser_can_show_is_replaced(web: Web, member: Member) -> None:
    write(member, "nul \x00, byte \udcff, <script>alert(1)</script>")
    with open_log(web, member) as socket:
        socket.send(json.dumps({"after": 0}))
        frames = frames_until(socket, lambda seen: bool(texts(seen)))
        assert texts(frames) == ["nul \ufffd, byte \ufffd, <script>alert(1)</script>"]


@pytest.mark.survive(30)
def test_a_viewer_that_acknowledges_gets_no_more_than_the_window(web: Web, member: Member) -> None:
    write(member, *["x" * 50] * 12_000)
    with open_log(web, member) as socket:
        socket.send(json.dumps({"ack": 0}))
        socket.send(json.dumps({"after": 0}))
        # statuses come each second; the lines stop at the window
        frames = frames_until(socket, lambda seen: sum("ranks" in frame for frame in seen) >= 3)
        assert len(numbers(frames)) == 4000
        seen = len(numbers(frames))
        while seen < 12_000:
            socket.send(json.dumps({"ack": seen}))
            more = frames_until(socket, lambda new: bool(numbers(new)))
            assert numbers(more)[0] == seen + 1
            seen += len(numbers(more))


def test_frames_are_bounded_in_bytes(web: Web, member: Member) -> None:
    write(member, *["y" * 60_000] * 100)
    with open_log(web, member) as socket:
        socket.send(json.dumps({"after": 0}))
        frames = frames_until(socket, lambda seen: len(numbers(seen)) == 100)
        assert numbers(frames) == list(range(1, 101))
        assert max(len(json.dumps(frame)) for frame in frames) < 1.5 * 1024**2


@pytest.mark.survive(30)
def test_a_lost_wake_up_costs_a_second(web: Web, member: Member, redis_server: Redis) -> None:
    with open_log(web, member) as socket:
        socket.send(json.dumps({"after": 0}))
        frames_until(socket, lambda seen: bool(seen))
        working, settings.REDIS_URL = settings.REDIS_URL, "redis://127.0.0.1:1"  # announcements go nowhere
        from events import announce

        announce._connection.cache_clear()
        try:
            write(member, "unannounced")
            frames_until(socket, lambda seen: "unannounced" in texts(seen))
        finally:
            settings.REDIS_URL = working
            announce._connection.cache_clear()


def close_code(web: Web, path: str, **options: Any) -> int:
    with connect(f"{web.socket_url}{path}", **options) as socket, pytest.raises(ConnectionClosed) as closed:
        while True:
            socket.recv(timeout=60)
    received = closed.value.rcvd
    assert received is not None
    return int(received.code)


def cookie(user: User) -> dict[str, str]:
    session = SessionStore()
    session[SESSION_KEY] = str(user.pk)
    session[BACKEND_SESSION_KEY] = "django.contrib.auth.backends.ModelBackend"
    session[HASH_SESSION_KEY] = user.get_session_auth_hash()
    session.create()
    return {"Cookie": f"theme=dark; {settings.SESSION_COOKIE_NAME}={session.session_key}"}


def test_sockets_need_a_login_and_their_own_origin(web: Web, member: Member) -> None:
    user = member.allocation.task.job.owner
    path = f"/ws/tasks/{member.allocation.task_id}/logs"
    assert close_code(web, path) == 4401
    assert close_code(web, path, additional_headers={"Authorization": "Bearer wrong"}) == 4401
    assert close_code(web, path, additional_headers={"Cookie": "sessionid=wrong"}) == 4401
    headers = cookie(user)
    origin = web.url
    with connect(f"{web.socket_url}{path}", additional_headers=headers, origin=origin) as socket:
        assert frames_until(socket, lambda seen: bool(seen))
    with pytest.raises(InvalidStatus, match="403"):
        connect(f"{web.socket_url}{path}", additional_headers=headers, origin="https://evil.example")
    assert close_code(web, "/ws/tasks/no-such-task/logs", additional_headers=headers) == 4404
    assert close_code(web, "/ws/nothing", additional_headers=headers) == 4404
    User.objects.filter(pk=user.pk).update(is_active=False)
    assert close_code(web, path, additional_headers=headers) == 4401


def test_viewers_that_leave_are_forgotten_without_noise(web: Web, member: Member) -> None:
    before = len(web.log())
    for _ in range(5):
        with open_log(web, member) as socket:
            socket.send(json.dumps({"after": 0}))
    write(member, "afterwards")
    with open_log(web, member) as socket:
        socket.send(json.dumps({"after": 0}))
        assert texts(frames_until(socket, lambda seen: bool(texts(seen)))) == ["afterwards"]
    log = web.log(before)
    assert not re.search("Traceback|failed", log), log[-3000:]
