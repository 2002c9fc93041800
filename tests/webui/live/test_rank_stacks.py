"""Asking what a rank is doing: over REST and from the log page, by those who may, with one answer for all who wait.

The worker that would carry the wish to the host is the test itself."""

import threading
import time
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from django.conf import settings
from django.contrib.auth import BACKEND_SESSION_KEY, HASH_SESSION_KEY, SESSION_KEY
from django.contrib.sessions.backends.db import SessionStore
from django.db import connection

from accounts.models import LoginToken, User
from jobs.models import Member
from logs import pulse, stacks
from logs.models import RankSeen, RankStack
from tests.rig.rows import make_gang
from tests.rig.web import Web

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def member(db: None) -> Member:
    member = make_gang()[0]
    pulse.keep(member.pk, [{"rank": rank, "state": "S"} for rank in range(4)])
    return member


@pytest.fixture
def api(web: Web, member: Member) -> Iterator[httpx.Client]:
    token = LoginToken.issue(member.allocation.task.job.owner)
    with client_of(web, member, token) as client:
        yield client


def client_of(web: Web, member: Member, token: str) -> httpx.Client:
    base = f"{web.url}/api/v1/tasks/{member.allocation.task_id}"
    return httpx.Client(base_url=base, headers={"Authorization": f"Bearer {token}"}, timeout=60)


def user(role: str) -> User:
    return User.objects.create_user(f"{role}-{time.monotonic_ns()}", role=role)


def wait_for_wish(task_id: str, ranks: list[int]) -> None:
    until = time.monotonic() + 60
    while RankStack.objects.filter(task_id=task_id, rank__in=ranks, answered_at=None).count() < len(ranks):
        assert time.monotonic() < until, "nobody asked"
        time.sleep(0.02)


def asked(call: Any, task_id: str, answers: dict[int, tuple[bool, str]]) -> Any:
    """What `call` returns when a worker gives these answers."""
    found: list[Any] = []
    thread = threading.Thread(target=lambda: found.append(call()))
    thread.start()
    wait_for_wish(task_id, list(answers))
    stacks.answer(task_id, answers)
    thread.join(60)
    connection.close()
    return found[0]


def test_a_stack_is_waited_for_and_a_sentence_where_there_is_none(api: httpx.Client, member: Member) -> None:
    task_id = member.allocation.task_id
    answer = asked(lambda: api.post("/ranks/3/stack"), task_id, {3: (True, "rank 3 …\x00")})
    assert (answer.status_code, answer.json()) == (200, {"rank": 3, "text": "rank 3 …"})
    answer = asked(lambda: api.post("/ranks/3/stack"), task_id, {3: (False, "Process 9 is stopped.")})
    assert answer.json() == {"rank": 3, "message": "Process 9 is stopped."}


def test_several_ranks_are_asked_together_and_by_default_those_that_are_marked(
    api: httpx.Client, member: Member
) -> None:
    task_id = member.allocation.task_id
    both = {1: (True, "one"), 2: (False, "two")}
    answer = asked(lambda: api.post("/stacks", json={"ranks": [2, 1]}), task_id, both)
    assert answer.json() == {"stacks": [{"rank": 1, "text": "one"}, {"rank": 2, "message": "two"}]}
    assert api.post("/stacks").json() == {"stacks": []}
    pulse.keep(member.pk, [{"rank": 0, "state": "S"}, {"rank": 1, "state": "T", "state_seconds": 30}])
    answer = asked(lambda: api.post("/stacks"), task_id, {1: (True, "stopped")})
    assert answer.json() == {"stacks": [{"rank": 1, "text": "stopped"}]}


def test_a_rank_that_no_gang_has_is_refused_with_those_that_there_are(
    api: httpx.Client, web: Web, member: Member
) -> None:
    task_id = member.allocation.task_id
    RankSeen.objects.create(
        task_id=task_id, rank=9, host="h", last_time=1.0
    )  # its lines are from an attempt before
    sentence = f"Task {task_id} has no rank 7-8, 2147483647; it has 0-3, 9."
    answer = api.post("/stacks", json={"ranks": [1, 7, 8, 2**31 - 1]})
    assert (answer.status_code, answer.json()["message"]) == (404, sentence)
    assert api.post("/ranks/7/stack").status_code == 404
    with logged_in(web, user(User.Role.EDITOR)) as page:
        answer = page.post(f"/tasks/{task_id}/ranks/4/stack", headers=token_of(page))
        assert answer.status_code == 404 and "has no rank 4; it has 0-3, 9." in answer.json()["message"]
    assert not RankStack.objects.exists()


def test_who_asks_at_the_same_time_shares_one_wish(member: Member) -> None:
    task_id = member.allocation.task_id
    stacks.ask(task_id, [1], by="user:ada")
    stacks.ask(task_id, [1, 2], by="user:bob")
    assert list(RankStack.objects.order_by("rank").values_list("rank", "asked_by")) == [
        (1, "user:ada"),
        (2, "user:bob"),
    ]
    stacks.answer(task_id, {1: (True, "x"), 2: (True, "y")})
    stacks.ask(task_id, [1], by="user:bob")
    assert list(stacks.answered(task_id, [1, 2])) == [2]  # an old answer is none to a new question


def test_the_pulse_as_rest_says_it(api: httpx.Client, member: Member) -> None:
    pulse.keep(member.pk, [{"rank": 0, "state": "S", "cpu": 0.5, "gpu": 80, "doing": "saves a checkpoint"}])
    assert api.get("/pulse").json() == {
        "ranks": [
            {
                "rank": 0, "host": member.host.name, "active": True, "processState": "S", "cpu": 0.5,
                "gpuPercent": 80, "doing": "saves a checkpoint",
            }
        ]
    }  # fmt: skip


def test_viewers_read_the_pulse_and_may_not_interrupt_a_rank(web: Web, member: Member) -> None:
    with client_of(web, member, LoginToken.issue(user(User.Role.VIEWER))) as viewer:
        assert viewer.get("/pulse").status_code == 200
        for path, body in (("/ranks/0/stack", {}), ("/stacks", {"ranks": [0]})):
            refused = viewer.post(path, json=body)
            assert refused.status_code == 403 and "viewer" in refused.json()["message"]
    with httpx.Client(base_url=web.url) as nobody:
        assert nobody.post(f"/api/v1/tasks/{member.allocation.task_id}/ranks/0/stack").status_code == 401
        assert nobody.get(f"/api/v1/tasks/{member.allocation.task_id}/pulse").status_code == 401


@pytest.mark.parametrize(
    "body", [{"ranks": 3}, {"ranks": ["1"]}, {"ranks": [-1]}, {"ranks": list(range(65))}]
)
def test_bad_ranks_get_a_sentence(api: httpx.Client, body: dict[str, Any]) -> None:
    answer = api.post("/stacks", json=body)
    assert answer.status_code == 400 and "ranks must be" in answer.json()["message"]


def test_a_task_that_is_not_there_is_said_to_be_missing(web: Web, member: Member) -> None:
    token = LoginToken.issue(member.allocation.task.job.owner)
    with httpx.Client(base_url=web.url, headers={"Authorization": f"Bearer {token}"}) as client:
        assert client.post("/api/v1/tasks/none/ranks/0/stack").status_code == 404
        assert client.get("/api/v1/tasks/none/pulse").status_code == 404


def test_the_log_page_asks_by_its_own_address_with_a_csrf_token(web: Web, member: Member) -> None:
    task_id = member.allocation.task_id
    path = f"/tasks/{task_id}/ranks/2/stack"
    with logged_in(web, user(User.Role.EDITOR)) as page:
        assert page.post(path).status_code == 403  # no token
        answer = asked(lambda: page.post(path, headers=token_of(page)), task_id, {2: (True, "its stack")})
        assert answer.json() == {"rank": 2, "text": "its stack"}
        assert page.get(path).status_code == 405
        assert page.post("/tasks/none/ranks/2/stack", headers=token_of(page)).status_code == 404
    with logged_in(web, user(User.Role.VIEWER)) as page:
        refused = page.post(path, headers=token_of(page))
        assert refused.status_code == 403 and "viewer" in refused.json()["message"]


def logged_in(web: Web, who: User) -> httpx.Client:
    session = SessionStore()
    session[SESSION_KEY] = str(who.pk)
    session[BACKEND_SESSION_KEY] = "django.contrib.auth.backends.ModelBackend"
    session[HASH_SESSION_KEY] = who.get_session_auth_hash()
    session.create()
    cookies = {settings.SESSION_COOKIE_NAME: str(session.session_key)}
    return httpx.Client(base_url=web.url, timeout=60, cookies=cookies)


def token_of(client: httpx.Client) -> dict[str, str]:
    assert client.get("/jobs").status_code == 200
    return {"X-CSRFToken": client.cookies["csrftoken"]}
