"""Who may use which route of the REST dialect and the addresses beside it: every method, with every kind of token.

A change is asked for with an example that succeeds for somebody, or is in UNDONE with the reason; `yes` is a success.

The table is kept in golden/access.txt. `ACCESS=write python -m pytest tests/webui/api/test_access.py` writes it again;
what no table may say is asserted beside it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from django.conf import LazySettings
from django.db import transaction
from django.http import HttpResponseBase
from django.urls import URLPattern

from accounts import tokens
from accounts.models import AccessToken, LoginToken, Scope, User
from accounts.passwords import set_password
from accounts.rights import declared_by
from commands.models import Command
from experiments.models import Trial
from jobs import transitions
from jobs.models import Allocation
from shown.rest_bodies import BODIES
from tests.rig import access, rest_examples
from tests.rig.api import Api, Json
from tests.rig.golden_world import QUERIES, World
from tests.rig.world import make_user
from webui import urls
from webui.api import urls as dialect
from webui.api.docs import schema

TABLE = Path(__file__).parent / "golden" / "access.txt"
WRITE = "ACCESS=write python -m pytest tests/webui/api/test_access.py"
READS = {"GET", "HEAD"}
DEMOTED = "owner who is a viewer now"
#: of what viewers read, the others read as much, so they are not asked
MORE_THAN_VIEWERS = {"editor", "owner", DEMOTED, "write", "admin"}
#: what needs no login
OPEN = {
    "POST /api/v1/auth/login",
    "GET /api/v1/master",
    "GET /api/v1/schemas",
    "GET /api/v1/schemas/{name}",
    "GET /api/",
    "GET /api/v1/checkpoints/{name}",  # where nothing is
    "GET /info",
    "GET /health",
}
#: what says no in another way to whoever is not logged in
BY_SESSION = {"GET /api/v1/docs": "leads on", "GET /metrics": "no"}
#: what changes nothing but what is the viewer's own, or nothing at all
FOR_VIEWERS = {
    "POST /api/v1/auth/logout",
    "POST /api/v1/checkpoints/deletion-preview",
    "POST /api/v1/experiments/{experiment_id}/file",
    "POST /api/v1/groups/search",
    "POST /api/v1/preview-hp-search",
    "POST /api/v1/runs",
    "POST /api/v1/tokens",
    "PATCH /api/v1/tokens/{token_id}",
    "POST /api/v1/users/setting",
    "POST /api/v1/users/setting/reset",
}
#: what a run's token may ask beyond its own run, or where the token alone says which run it is about
FOR_ANY_RUN = {*OPEN, "POST /api/v1/checkpoints", "PUT /api/v1/notebooks/{command_id}/report_idle"}

#: what people change without an event: their own settings, tries (of a message, which are kept as deliveries; of an
#: edit, which are taken back), what is only noted, and what their own detached runs report
UNTOLD = {
    "POST /api/v1/allocations/{allocation_id}/signals/ack_preemption",
    "POST /api/v1/job-queues/preview",
    "PATCH /api/v1/trials/{trial_id}",
    "POST /api/v1/task/logs",
    "POST /api/v1/users/setting",
    "POST /api/v1/users/setting/reset",
    "POST /task-logs",
    "POST /api/v1/webhooks/{rule_id}/deliveries/{delivery_id}/retry",
    "POST /api/v1/webhooks/{rule_id}/test",
}
#: changes that nobody gets done in this world, and why
UNDONE = {
    "DELETE /api/v1/hosts/{name}": "its hosts run jobs",
    "DELETE /api/v1/workspaces/{workspace_id}": "it has a project",
    "POST /api/v1/hosts/{name}/accept-key": "no host shows another key",
    "POST /api/v1/experiments/{experiment_id}/searcher_operations": "the run's search is the server's",
    "POST /api/v1/tasks/{task_id}/ranks/{rank}/stack": "no host would answer",
    "POST /api/v1/tasks/{task_id}/stacks": "no host would answer",
}


@pytest.fixture
def world(db: None, settings: LazySettings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    """Everything in it belongs to ada, an editor."""
    return access.make_world(settings, tmp_path, monkeypatch)


def principals(world: World) -> dict[str, Api]:
    ada, now = make_user("ada"), datetime.now(UTC)
    set_password(ada, str(BODIES["LoginBody"]["password"]), is_hashed=False)
    ada.save()
    running = Allocation.objects.get(pk=world.places["allocations/allocation_id"][0])
    shell = Command.objects.get(pk=world.places["shells/command_id"][0])
    open_ones = Allocation.objects.exclude(state="TERMINATED")
    other = open_ones.get(task=shell.task)
    detached = Trial.objects.get(experiment__unmanaged=True)
    sibling = open_ones.get(task_id=detached.task_id)

    def token(scope: Scope, **fields: Any) -> str:
        row, made = tokens.create(ada, description=scope.value, days=1, scope=scope, actor="user:ada")
        later = now + timedelta(hours=1)  # no request of the test notes that the token was used
        AccessToken.objects.filter(pk=row.pk).update(used_at=later, **fields)
        return made

    found = {
        "nobody": Api(),
        "expired": Api(token(Scope.FULL, expires_at=now - timedelta(seconds=1))),
        "revoked": Api(token(Scope.FULL, revoked_at=now)),
        "viewer": Api(LoginToken.issue(make_user("vic", User.Role.VIEWER))),
        "editor": Api(LoginToken.issue(make_user("bob"))),
        "owner": Api(LoginToken.issue(ada)),
        DEMOTED: Api(LoginToken.issue(ada)),
        "read": Api(token(Scope.READ)),
        "write": Api(token(Scope.WRITE)),
        "admin": world.api,
        "run": Api(transitions.run_token(running)),
        "run of another trial": Api(transitions.run_token(sibling)),
        "other run": Api(transitions.run_token(other)),
    }
    access.nobody_is_seen()
    return found


def all_routes() -> dict[str, dict[str, Json]]:
    """The document's paths and, described by nothing but their methods, the addresses that are not in it."""
    found: dict[str, dict[str, Json]] = dict(schema()["paths"])
    for each in [*dialect.urlpatterns, *(each for each in urls.urlpatterns if isinstance(each, URLPattern))]:
        route = "/" + re.sub(r"<(?:\w+:)?(\w+)>", r"{\1}", str(each.pattern).strip("^"))
        methods = declared_by(getattr(each.callback, "cls", each.callback))
        found.setdefault(route, {("get" if name == "*" else name.lower()): {} for name in methods})
    return found


def operations(world: World) -> Iterator[tuple[str, str, Any]]:
    """`METHOD route`, an address with rows that exist, and a body."""
    examples = rest_examples.of(world)
    for route, methods in sorted(all_routes().items()):
        for method, described in methods.items():
            name = f"{method.upper()} {route}"
            places, sent = examples.get(name, ({}, None))
            content: Json = described.get("requestBody", {}).get("content", {})
            body = next((each["example"] for each in content.values()), None)
            yield name, address_of(world, route, places), body if sent is None else sent


def address_of(world: World, route: str, places: dict[str, object]) -> str:
    """The address of a row that exists; one that none leads to is 1."""
    parts = route.split("/")
    for index, part in enumerate(parts):
        if part.startswith("{"):
            noun, name = parts[index - 1].strip("{}"), part.strip("{}")
            known = world.places.get(f"{noun}/{name}", ["1"])[0]
            route = route.replace(part, str(places.get(name, known)), 1)
    if query := QUERIES.get("/".join(parts)):
        route += "?" + query[0].format_map({place: values[0] for place, values in world.places.items()})
    return route


def answered(api: Api, who: str, name: str, address: str, body: Any) -> int:
    method = name.partition(" ")[0]
    data = b"" if body is None else json.dumps(body).encode()
    reads = method in READS
    with transaction.atomic():
        if who == DEMOTED:
            access.demote()
        before, event = (0, 0) if reads else (access.written(), access.newest_event())
        answer: HttpResponseBase = api.client.generic(
            method, address, data, content_type="application/json", headers=api.headers
        )
        changes = not reads and answer.status_code < 300 and access.written() > before
        is_person = "run" not in who
        is_told = not changes or name in UNTOLD or not is_person or access.told_since(event)
        answer.close()
        transaction.set_rollback(True)
    assert is_told, f"{name}: no event says who changed something, and from where"
    return answer.status_code


@pytest.mark.django_db(transaction=True)
def test_every_route_lets_in_whom_it_should(world: World, redis_server: object) -> None:
    who = principals(world)
    found: dict[str, dict[str, str]] = {}
    undone: dict[str, dict[str, int]] = {}
    for name, address, body in operations(world):
        statuses: dict[str, int] = {}
        for each, api in who.items():
            if (
                each not in MORE_THAN_VIEWERS
                or name.partition(" ")[0] not in READS
                or statuses["viewer"] >= 300
            ):
                statuses[each] = answered(api, each, name, address, body)
        assert max(statuses.values()) < 500, (name, statuses)
        found[name] = {each: access.meaning(status) for each, status in statuses.items()}
        if name.partition(" ")[0] not in READS and "yes" not in found[name].values():
            undone[name] = statuses
    access.check(TABLE, found, WRITE)
    assert undone.keys() == UNDONE.keys(), (
        f"an example that succeeds for somebody, or a reason in UNDONE: {undone}"
    )
    for name, answers in found.items():
        _sound(name, answers)


def _sound(name: str, answers: dict[str, str]) -> None:
    """What holds for every route, whatever the table says."""
    method = name.partition(" ")[0]
    assert answers["expired"] == answers["revoked"] == answers["nobody"] or name in OPEN, name
    assert answers["nobody"] == "login" or name in OPEN | BY_SESSION.keys(), name
    if method not in READS:
        for who in ("viewer", DEMOTED):
            assert answers[who] != "yes" or name in FOR_VIEWERS | OPEN, (name, who)
        assert answers["read"] != "yes" or name in OPEN | {"POST /api/v1/groups/search"}, (
            name
        )  # the dialect's list
        assert answers["write"] != "yes" or answers["owner"] == "yes", name
        assert answers["editor"] != "yes" or answers["owner"] == "yes", name
    assert "yes" not in (answers["other run"], answers["run of another trial"]) or name in FOR_ANY_RUN, name


@pytest.mark.django_db(transaction=True)
def test_a_run_reads_nothing_of_others_by_naming_its_own_beside_them(world: World) -> None:
    mine, theirs = (Trial.objects.get(experiment__name=name) for name in ("running", "failed"))
    run = Api(transitions.run_token(Allocation.objects.get(pk=world.places["allocations/allocation_id"][0])))
    lists = [
        ("experiments/metrics-stream/metric-names?ids={}", mine.experiment_id, theirs.experiment_id),
        ("trials/metrics/trial_metrics?group=training&trialIds={}", mine.pk, theirs.pk),
        ("trials/metrics/training_metrics?trialIds={}", mine.pk, theirs.pk),
        ("trials/metrics/validation_metrics?trialIds={}", mine.pk, theirs.pk),
    ]
    for address, own, other in lists:
        again = "&" + address.rpartition("?")[2].rpartition("&")[2]
        for first, second, status in ((own, own, 200), (own, other, 404), (other, own, 404)):
            path = f"/api/v1/{address.format(first)}{again.format(second)}"
            answer = run.client.get(path, headers=run.headers)
            assert answer.status_code == status, (path, answer.status_code)
            answer.close()
