"""The short way to views that programs poll, against a real web process: the same as the long way, only shorter."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable
from typing import Any

import httpx
import pytest
from asgiref.testing import ApplicationCommunicator
from django.conf import LazySettings
from django.db import connection

from accounts import tokens
from accounts.models import AccessToken, LoginToken, Scope, User, token_hash
from accounts.rights import declared_by
from dispatch.passes import pool_pass
from events.models import Event
from experiments.models import Trial
from jobs import transitions
from jobs.models import Allocation
from jobs.states import Reason, StopKind
from tests.rig.web import Web
from tests.rig.world import attempt_of, make_host, make_user, submit_experiment, trial_of
from webui import short_way

pytestmark = pytest.mark.django_db(transaction=True)
#: with a cookie, any cookie, a request takes the long way
LONG = {"Cookie": "theme=dark"}
_client = httpx.Client()  # one connection, as programs keep


@pytest.fixture
def trial() -> Trial:
    """A trial of Ada's that has an attempt."""
    make_host("gpu1", 1)
    experiment = submit_experiment(name="digits")
    pool_pass.run(experiment.job.pool_id)
    run = attempt_of(experiment)
    Allocation.objects.filter(pk=run.pk).update(token_hash=token_hash(transitions.run_token(run)))
    return trial_of(experiment)


def run_of(trial: Trial) -> Allocation:
    return Allocation.objects.get(task_id=trial.task_id)


def send(web: Web, token: str, method: str, path: str, body: Any = None, **headers: str) -> httpx.Response:
    sent = {"Authorization": f"Bearer {token}", **headers} if token else headers
    return _client.request(method, f"{web.url}{path}", json=body, headers=sent, timeout=60)


def report(step: int, value: object = 0.5) -> dict[str, Any]:
    return {
        "group": "training",
        "metrics": {"stepsCompleted": step, "metrics": {"avgMetrics": {"loss": value}}},
    }


def requests_of(trial: Trial) -> list[tuple[str, str, Any]]:
    """Good and bad ones to every address of the short way."""
    here, run = f"/api/v1/trials/{trial.pk}", f"/api/v1/allocations/{run_of(trial).pk}/signals/preemption"
    return [
        ("GET", f"/api/v1/experiments/{trial.experiment_id}", None),
        ("GET", "/api/v1/experiments/999999", None),
        ("GET", f"/api/v1/experiments/{10**30}", None),
        ("GET", here, None),
        ("GET", "/api/v1/trials/999999", None),
        ("PATCH", here, {}),
        ("PATCH", here, {"state": "STATE_RUNNING"}),
        ("PATCH", here, [1]),
        ("GET", f"{run}?timeout_seconds=0", None),
        ("GET", f"{run}?timeoutSeconds=x", None),
        ("GET", "/api/v1/allocations/none/signals/preemption", None),
        ("POST", f"{here}/metrics", report(1)),
        ("POST", f"{here}/metrics", {"group": "training"}),
        ("POST", f"{here}/metrics", report(-1)),
        ("POST", f"{here}/metrics", {"group": "a\0b", "metrics": {"metrics": {"avgMetrics": {"a": 1}}}}),
        ("POST", "/api/v1/trials/999999/metrics", report(1)),
        ("POST", f"{here}/training_metrics", report(1)["metrics"]),
        ("POST", f"{here}/validation_metrics", {**report(1)["metrics"], "steps_completed": 2}),
        ("POST", f"{here}/progress", {"progress": 0.25}),
        ("POST", f"{here}/progress", 0.5),
        ("POST", f"{here}/progress", None),
        ("POST", f"{here}/runner/metadata", {"state": "reading"}),
    ]


def told(answer: httpx.Response) -> tuple[int, Any, dict[str, str]]:
    """What must be the same: of the body all but what the clock says, and the headers."""
    body = answer.json()
    for record in (body.get("trial"), body.get("experiment")):
        for name in ("wallClockTime", "duration"):
            (record or {}).pop(name, None)
    headers = {
        name: value for name, value in answer.headers.items() if name not in {"date", "content-length"}
    }
    return answer.status_code, body, headers


def test_every_login_gets_the_same_answer_on_both_ways(web: Web, trial: Trial) -> None:
    ada = make_user("ada")
    logins = {
        "owner": LoginToken.issue(ada),
        "another editor": LoginToken.issue(make_user("bob")),
        "viewer": LoginToken.issue(make_user("vic", User.Role.VIEWER)),
        "read": tokens.create(ada, description="", days=1, scope=Scope.READ, actor="user:ada")[1],
        "run": transitions.run_token(run_of(trial)),
        "made up": "no-such-token",
        "none": "",
    }
    statuses = set()
    for name, token in logins.items():
        for method, path, body in requests_of(trial):
            short, long = (told(send(web, token, method, path, body, **way)) for way in ({}, LONG))
            assert short == long, (name, method, path, body)
            statuses.add(short[0])
    assert statuses == {200, 400, 401, 403, 404}


def test_all_addresses_of_the_short_way_are_tried_here(trial: Trial) -> None:
    tried = {
        (method, found.route)
        for method, path, _ in requests_of(trial)
        if (found := short_way._match({"method": method, "path": path.partition("?")[0]}))
    }
    offered = {
        (method, str(pattern.pattern)) for pattern, methods in short_way._polled() for method in methods
    }
    assert tried == offered
    for pattern, methods in short_way._polled():
        assert methods <= declared_by(getattr(pattern.callback, "cls", pattern.callback)).keys()


BEARER = [(b"authorization", b"Bearer made-up")]
EMPTY_BODY = {"type": "http.request", "body": b"", "more_body": False}


def scope_of(**change: Any) -> dict[str, Any]:
    """A request for what a program polls, as a server hands it to the application."""
    return {
        "type": "http", "method": "GET", "path": "/api/v1/allocations/1.1/signals/preemption", "query_string": b"",
        "scheme": "http", "headers": BEARER, "server": ("127.0.0.1", 80), "client": ("127.0.0.1", 1), **change,
    }  # fmt: skip


async def no_django(scope: Any, receive: Any, send: Any) -> None:
    raise AssertionError(f"{scope['path']} was handed on")


@pytest.mark.parametrize(
    ("is_short", "change"),
    [
        (True, {}),
        (False, {"method": "DELETE"}),
        (False, {"path": "/api/v1/trials/1/kill"}),
        (False, {"headers": []}),
        (False, {"headers": [*BEARER, (b"cookie", b"a=b")]}),
        (False, {"headers": [*BEARER, (b"content-length", b"65537")]}),
        (False, {"headers": [*BEARER, (b"transfer-encoding", b"chunked")]}),
        (False, {"headers": [*BEARER, (b"host", b"elsewhere.example")]}),
    ],
)
def test_what_goes_which_way(is_short: bool, change: dict[str, Any], settings: LazySettings) -> None:
    """Played without a server. Whoever the token stands for, the short way answers itself."""
    settings.ALLOWED_HOSTS = ["127.0.0.1"]
    handed_on = []

    async def django(scope: Any, receive: Any, send: Any) -> None:
        handed_on.append(scope["path"])
        await send({"type": "http.response.start", "status": 200, "headers": []})

    async def play() -> int:
        request = ApplicationCommunicator(short_way.ShortWay(django), scope_of(**change))
        request.input_queue.put_nowait(EMPTY_BODY)
        return int((await request.receive_output(10))["status"])

    assert asyncio.run(play()) == (401 if is_short else 200) and bool(handed_on) != is_short


def test_a_request_whose_turn_does_not_come_is_left_to_its_bounds() -> None:
    async def play() -> bool:
        request = ApplicationCommunicator(short_way.ShortWay(no_django), scope_of())
        request.input_queue.put_nowait({"type": "http.disconnect"})
        await request.wait()
        return request.output_queue.empty()

    assert asyncio.run(play())


def revoked(row: AccessToken) -> Callable[[], object]:
    return lambda: tokens.revoke(row, actor="user:ada")


def test_a_token_that_was_revoked_is_refused_from_the_next_request_on(web: Web, trial: Trial) -> None:
    ada = make_user("ada")
    row, access = tokens.create(ada, description="", days=1, scope=Scope.FULL, actor="user:ada")
    login, run = LoginToken.issue(ada), run_of(trial)
    ends: list[tuple[str, str, Callable[[], object]]] = [
        (access, f"/api/v1/experiments/{trial.experiment_id}", revoked(row)),
        (login, f"/api/v1/trials/{trial.pk}", lambda: LoginToken.objects.filter(user=ada).delete()),
        (
            transitions.run_token(run),
            f"/api/v1/allocations/{run.pk}/signals/preemption",
            lambda: Allocation.objects.filter(pk=run.pk).update(state="TERMINATED"),
        ),
    ]
    for token, path, end in ends:
        for _ in range(3):  # it is known by now, wherever that could be remembered
            assert send(web, token, "GET", path).status_code == 200
        end()
        assert send(web, token, "GET", path).status_code == 401, path


def test_a_role_that_was_taken_counts_from_the_next_request_on(web: Web, trial: Trial) -> None:
    token, path = LoginToken.issue(make_user("ada")), f"/api/v1/trials/{trial.pk}/metrics"
    assert send(web, token, "POST", path, report(1)).status_code == 200
    User.objects.filter(username="ada").update(role=User.Role.VIEWER)
    assert send(web, token, "POST", path, report(2)).status_code == 403


def test_what_a_person_reports_leaves_an_event_with_the_address(web: Web, trial: Trial) -> None:
    token = LoginToken.issue(make_user("ada"))
    assert send(web, token, "POST", f"/api/v1/trials/{trial.pk}/metrics", report(1)).status_code == 200
    event = Event.objects.get(reason="metrics_reported")
    assert (event.actor, event.origin) == ("user:ada", "127.0.0.1")


def test_connections_that_the_database_has_closed_are_opened_again(web: Web, trial: Trial) -> None:
    token, path = LoginToken.issue(make_user("ada")), f"/api/v1/trials/{trial.pk}"
    for _ in range(3):
        assert send(web, token, "GET", path).status_code == 200
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity "
            "WHERE datname = current_database() AND pid <> pg_backend_pid()"
        )
        assert cursor.rowcount > 0
    for _ in range(3):
        assert send(web, token, "GET", path).status_code == 200
        assert send(web, token, "POST", f"{path}/metrics", report(1)).status_code == 200


def test_a_poll_waits_for_its_order(web: Web, trial: Trial) -> None:
    run, begun = run_of(trial), time.monotonic()
    path = f"/api/v1/allocations/{run.pk}/signals/preemption?timeout_seconds="
    token = transitions.run_token(run)
    assert send(web, token, "GET", f"{path}1").json() == {"preempt": False}
    assert time.monotonic() - begun >= 1
    transitions.request_stop(run.pk, StopKind.PREEMPT, reason=Reason.PREEMPTED, actor="scheduler")
    assert send(web, token, "GET", f"{path}60").json() == {"preempt": True}


def test_a_poll_ends_with_its_client(trial: Trial) -> None:
    async def play() -> None:
        token = transitions.run_token(run)
        scope = scope_of(
            path=f"/api/v1/allocations/{run.pk}/signals/preemption",
            query_string=b"timeout_seconds=60",
            headers=[(b"authorization", f"Bearer {token}".encode())],
        )
        request = ApplicationCommunicator(short_way.ShortWay(no_django), scope)
        request.input_queue.put_nowait(EMPTY_BODY)
        assert await request.receive_nothing(0.5)
        request.input_queue.put_nowait({"type": "http.disconnect"})
        await request.wait(20)
        assert request.output_queue.empty()

    run = run_of(trial)
    asyncio.run(play())


def test_large_requests_take_the_long_way_and_are_served(web: Web, trial: Trial) -> None:
    token, body = LoginToken.issue(make_user("ada")), report(1)
    body["metrics"]["metrics"]["avgMetrics"] |= {f"metric{number}": 1.0 for number in range(5000)}
    assert len(json.dumps(body)) > 65_536
    assert send(web, token, "POST", f"/api/v1/trials/{trial.pk}/metrics", body).status_code == 200
