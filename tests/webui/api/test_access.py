"""Who may use which route of the REST dialect: every method of every route, asked by every kind of token.

The table is kept in golden/access.txt. `ACCESS=write python -m pytest tests/webui/api/test_access.py` writes it again;
what no table may say is asserted beside it.
"""

from __future__ import annotations

import difflib
import json
import math
import os
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from django.apps import apps
from django.conf import LazySettings
from django.core.management.color import no_style
from django.db import connection, transaction
from django.http import HttpResponseBase

from accounts import tokens
from accounts.models import AccessToken, LoginToken, Scope, User
from commands.models import Command
from jobs import transitions
from jobs.models import Allocation
from logs import pulse
from notifications.models import Delivery
from tests.rig import golden_world
from tests.rig.api import Api, Json
from tests.rig.golden_world import QUERIES, World
from tests.rig.world import make_user
from webui.api import allocations
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
    "POST /api/v1/tokens",
    "POST /api/v1/users/setting",
    "POST /api/v1/users/setting/reset",
}
#: what a run's token may ask beyond its own run
FOR_ANY_RUN = {*OPEN, "PUT /api/v1/notebooks/{command_id}/report_idle"}
MEANING = {401: "login", 403: "no", 404: "hidden"}


@pytest.fixture
def world(db: None, settings: LazySettings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    """Everything in it belongs to ada, an editor."""
    settings.DATA_DIR = tmp_path
    monkeypatch.setitem(connection.settings_dict, "CONN_MAX_AGE", 0)  # threads give their connections back
    monkeypatch.setattr(pulse, "SILENT_SECONDS", math.inf)
    monkeypatch.setattr(allocations, "GANG_WAIT_SECONDS", 0.0)
    with connection.cursor() as cursor:  # the examples of bodies name rows by their first ids
        for statement in connection.ops.sequence_reset_sql(no_style(), apps.get_models()):
            cursor.execute(statement)
    made = golden_world.make(tmp_path)
    root, ada = User.objects.get(username="root"), make_user("ada")
    for model in apps.get_models():
        if "owner" in {each.name for each in model._meta.fields}:
            model._default_manager.filter(owner=root).update(owner=ada)
    AccessToken.objects.update(user=ada)
    delivery = Delivery.objects.filter(rule__isnull=False).latest("created_at")
    made.places["webhooks/rule_id"].insert(0, str(delivery.rule_id))
    made.add("deliveries/delivery_id", delivery.pk)
    return made


def principals(world: World) -> dict[str, Api]:
    ada, now = make_user("ada"), datetime.now(UTC)
    running = Allocation.objects.get(pk=world.places["allocations/allocation_id"][0])
    shell = Command.objects.get(pk=world.places["shells/command_id"][0])
    other = Allocation.objects.exclude(state="TERMINATED").get(task=shell.task)

    def access(scope: Scope, **fields: Any) -> str:
        row, token = tokens.create(ada, description=scope.value, days=1, scope=scope, actor="user:ada")
        AccessToken.objects.filter(pk=row.pk).update(**fields)
        return token

    return {
        "nobody": Api(),
        "expired": Api(access(Scope.FULL, expires_at=now - timedelta(seconds=1))),
        "revoked": Api(access(Scope.FULL, revoked_at=now)),
        "viewer": Api(LoginToken.issue(make_user("vic", User.Role.VIEWER))),
        "editor": Api(LoginToken.issue(make_user("bob"))),
        "owner": Api(LoginToken.issue(ada)),
        "read": Api(access(Scope.READ)),
        "write": Api(access(Scope.WRITE)),
        "admin": world.api,
        "run": Api(transitions.run_token(running)),
        "other run": Api(transitions.run_token(other)),
    }


def operations(world: World) -> Iterator[tuple[str, str, str, Any]]:
    """`METHOD route`, the method, an address with rows that exist, and a body."""
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
            yield f"{method.upper()} {route}", method.upper(), address, body


def answered(api: Api, method: str, address: str, body: Any) -> int:
    data = b"" if body is None else json.dumps(body).encode()
    with transaction.atomic():
        answer: HttpResponseBase = api.client.generic(
            method, address, data, content_type="application/json", headers=api.headers
        )
        answer.close()
        transaction.set_rollback(True)
    return answer.status_code


def line(name: str, answers: dict[str, str]) -> str:
    """A line of the table: the operation, and for each answer who gets it."""
    groups: dict[str, list[str]] = {}
    for each, answer in answers.items():
        groups.setdefault(answer, []).append(each)
    return f"{name}\n" + "".join(f"    {answer}: {', '.join(groups[answer])}\n" for answer in sorted(groups))


@pytest.mark.django_db(transaction=True)
def test_every_route_lets_in_whom_it_should(world: World) -> None:
    who = principals(world)
    found: dict[str, dict[str, str]] = {}
    for name, method, address, body in operations(world):
        statuses = {each: answered(api, method, address, body) for each, api in who.items()}
        assert max(statuses.values()) < 500, (name, statuses)
        found[name] = {each: MEANING.get(status, "yes") for each, status in statuses.items()}
    table = "".join(line(name, answers) for name, answers in found.items())
    if os.environ.get("ACCESS") == "write":
        TABLE.write_text(table, encoding="utf-8")
    for name, answers in found.items():
        _sound(name, answers)
    kept = TABLE.read_text(encoding="utf-8")
    changed = "\n".join(difflib.unified_diff(kept.splitlines(), table.splitlines(), lineterm="", n=4))
    assert not changed, f"{changed}\nIf you meant to change who may do what: {WRITE}"


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
