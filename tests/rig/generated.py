"""Requests drawn from the OpenAPI document (schemathesis), each answered in-process and undone afterwards."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import requests
import schemathesis
from django.db import transaction
from django.test import Client
from hypothesis import HealthCheck, Phase, given, seed, settings
from schemathesis.checks import not_a_server_error
from schemathesis.core.failures import Failure, FailureGroup
from schemathesis.core.transport import Response
from schemathesis.specs.openapi.checks import content_type_conformance, response_schema_conformance

from accounts.models import LoginToken, User
from webui.api.docs import schema

CHECKS = [not_a_server_error, content_type_conformance, response_schema_conformance]
#: they go on while there is more to come
STREAMS = ("/logs", "metrics-stream", "trials/metrics/", "/profiler/", "signals", "rendezvous", "all_gather")
#: they ask a machine elsewhere
ELSEWHERE = ("webhooks/{rule_id}/test",)

Wanted = Callable[[str, str], bool]


def answered(wanted: Wanted, examples: int) -> tuple[int, list[str]]:
    """How many operations that are `wanted` (method, path) got so many requests, and what is wrong with the answers."""
    admin, _ = User.objects.get_or_create(username="root", defaults={"role": User.Role.ADMIN})
    headers = {"Authorization": f"Bearer {LoginToken.issue(admin)}"}
    document = schemathesis.openapi.from_dict(schema())
    tried, wrong = 0, []
    for found in document.get_all_operations():
        operation = found.ok()
        method, path = operation.method.upper(), operation.path
        if any(part in path for part in (*STREAMS, *ELSEWHERE)) or not wanted(method, path):
            continue
        wrong += _tried(operation, examples, headers)
        tried += 1
    return tried, wrong


def _tried(operation: Any, examples: int, headers: dict[str, str]) -> list[str]:
    @seed(7)
    @settings(
        max_examples=examples,
        derandomize=False,
        database=None,
        deadline=None,
        phases=[Phase.explicit, Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(case=operation.as_strategy())
    def run(case: Any) -> None:
        with transaction.atomic():
            try:
                case.validate_response(_answer(case, headers), checks=CHECKS)
            finally:
                transaction.set_rollback(True)

    try:
        run()
    except (FailureGroup, Failure) as error:
        said = "; ".join(str(each) for each in getattr(error, "exceptions", [error]))
        return [f"{operation.method.upper()} {operation.path}: {said}"]
    return []


def _answer(case: Any, headers: dict[str, str]) -> Response:
    """By Django's own client, which leaves the test's connection to the database open."""
    sent = requests.Request(
        **case.as_transport_kwargs(base_url="http://testserver", headers=headers)
    ).prepare()
    body = sent.body.encode() if isinstance(sent.body, str) else sent.body or b""
    client = Client(raise_request_exception=False)
    kind = {"content_type": sent.headers.get("Content-Type", "application/json")}
    given = client.generic(sent.method or "", sent.path_url, body, headers=dict(sent.headers), **kind)
    content = b"".join(given) if given.streaming else given.content
    return Response(
        given.status_code, {name.lower(): [value] for name, value in given.items()}, content, sent, 0.0, False
    )
