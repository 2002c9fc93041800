"""Who may use which route of the REST dialect: every method of every route, asked by every kind of token.

The table is kept in golden/access.txt. `ACCESS=write python -m pytest tests/webui/api/test_access.py` writes it again;
what no table may say is asserted beside it.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from django.conf import LazySettings
from django.db import transaction
from django.http import HttpResponseBase

from accounts import tokens
from accounts.models import AccessToken, LoginToken, Scope, User
from commands.models import Command
from jobs import transitions
from jobs.models import Allocation
from tests.rig import access
from tests.rig.api import Api, Json
from tests.rig.golden_world import QUERIES, World
from tests.rig.world import make_user
from webui.api.docs import schema

TABLE = Path(__file__).parent / "golden" / "access.txt"
WRITE = "ACCESS=write python -m pytest tests/webui/api/test_access.py"
READS = {"GET", "HEAD"}
#: what needs no login
OPEN = {"POST /api/v1/auth/login", "GET /api/v1/master", "GET /api/v1/schemas", "GET /api/v1/schemas/{name}"}
#: what changes nothing but what is the viewer's own, or nothing at all
FOR_VIEWERS = {
    "POST /api/v1/auth/logout",
    "POST /api/v1/experiments/{experiment_id}/file",
    "POST /api/v1/preview-hp-search",
    "POST /api/v1/runs",
    "POST /api/v1/tokens",
    "POST /api/v1/users/setting",
    "POST /api/v1/users/setting/reset",
}
#: what a run's token may ask beyond its own run
FOR_ANY_RUN = {*OPEN, "PUT /api/v1/notebooks/{command_id}/report_idle"}

#: changes without an event: what runs report, a person's own settings, what is tried, and what is only noted
UNTOLD = {
    "POST /api/v1/allocations/{allocation_id}/signals/ack_preemption",
    "POST /api/v1/experiments/{experiment_id}/file",
    "POST /api/v1/preview-hp-search",
    "POST /api/v1/trials/{trial_id}/early_exit",
    "POST /api/v1/trials/{trial_id}/metrics",
    "POST /api/v1/trials/{trial_id}/progress",
    "POST /api/v1/trials/{trial_id}/runner/metadata",
    "POST /api/v1/trials/{trial_id}/training_metrics",
    "POST /api/v1/trials/{trial_id}/validation_metrics",
    "POST /api/v1/runs/{trial_id}/metadata",
    "POST /api/v1/users/setting",
    "POST /api/v1/users/setting/reset",
    "POST /api/v1/webhooks/{rule_id}/deliveries/{delivery_id}/retry",
    "POST /api/v1/webhooks/{rule_id}/test",
    "PUT /api/v1/notebooks/{command_id}/report_idle",
}


@pytest.fixture
def world(db: None, settings: LazySettings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    """Everything in it belongs to ada, an editor."""
    return access.make_world(settings, tmp_path, monkeypatch)


def principals(world: World) -> dict[str, Api]:
    ada, now = make_user("ada"), datetime.now(UTC)
    running = Allocation.objects.get(pk=world.places["allocations/allocation_id"][0])
    shell = Command.objects.get(pk=world.places["shells/command_id"][0])
    other = Allocation.objects.exclude(state="TERMINATED").get(task=shell.task)

    def token(scope: Scope, **fields: Any) -> str:
        row, made = tokens.create(ada, description=scope.value, days=1, scope=scope, actor="user:ada")
        later = now + timedelta(hours=1)  # no request of the test notes that the token was used
        AccessToken.objects.filter(pk=row.pk).update(used_at=later, **fields)
        return made

    return {
        "nobody": Api(),
        "expired": Api(token(Scope.FULL, expires_at=now - timedelta(seconds=1))),
        "revoked": Api(token(Scope.FULL, revoked_at=now)),
        "viewer": Api(LoginToken.issue(make_user("vic", User.Role.VIEWER))),
        "editor": Api(LoginToken.issue(make_user("bob"))),
        "owner": Api(LoginToken.issue(ada)),
        "read": Api(token(Scope.READ)),
        "write": Api(token(Scope.WRITE)),
        "admin": world.api,
        "run": Api(transitions.run_token(running)),
        "other run": Api(transitions.run_token(other)),
    }


def operations(world: World) -> Iterator[tuple[str, str, Any]]:
    """`METHOD route`, an address with rows that exist, and a body."""
    for route, methods in sorted(schema()["paths"].items()):
        parts = route.split("/")
        address = route
        for index, part in enumerate(parts):
            if part.startswith("{"):
                values = world.places.get(f"{parts[index - 1].strip('{}')}/{part.strip('{}')}", ["1"])
                address = address.replace(part, values[0], 1)
        if query := QUERIES.get(route):
            address += "?" + query[0].format_map({place: values[0] for place, values in world.places.items()})
        for method, described in methods.items():
            content: Json = described.get("requestBody", {}).get("content", {})
            body = next((each["example"] for each in content.values()), None)
            yield f"{method.upper()} {route}", address, body


def answered(api: Api, name: str, address: str, body: Any) -> int:
    method = name.partition(" ")[0]
    data = b"" if body is None else json.dumps(body).encode()
    reads = method in READS
    with transaction.atomic():
        before, event = (0, 0) if reads else (access.written(), access.newest_event())
        answer: HttpResponseBase = api.client.generic(
            method, address, data, content_type="application/json", headers=api.headers
        )
        changes = not reads and answer.status_code < 300 and access.written() > before
        is_told = not changes or name in UNTOLD or access.told_since(event)
        answer.close()
        transaction.set_rollback(True)
    assert is_told, f"{name}: no event says who changed something, and from where"
    return answer.status_code


@pytest.mark.django_db(transaction=True)
def test_every_route_lets_in_whom_it_should(world: World) -> None:
    who = principals(world)
    found: dict[str, dict[str, str]] = {}
    for name, address, body in operations(world):
        statuses = {each: answered(api, name, address, body) for each, api in who.items()}
        assert max(statuses.values()) < 500, (name, statuses)
        found[name] = {each: access.MEANING.get(status, "yes") for each, status in statuses.items()}
    for name, answers in found.items():
        _sound(name, answers)
    access.check(TABLE, found, WRITE)


def _sound(name: str, answers: dict[str, str]) -> None:
    """What holds for every route, whatever the table says."""
    method = name.partition(" ")[0]
    assert answers["expired"] == answers["revoked"] == "login" or name in OPEN, name
    assert answers["nobody"] == "login" or name in OPEN, name
    if method not in READS:
        assert answers["viewer"] != "yes" or name in FOR_VIEWERS, name
        assert answers["read"] != "yes" or name in OPEN, name
        assert answers["write"] != "yes" or answers["owner"] == "yes", name
        assert answers["editor"] != "yes" or answers["owner"] == "yes", name
    assert answers["other run"] != "yes" or name in FOR_ANY_RUN, name
