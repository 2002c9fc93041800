"""Requests drawn from the OpenAPI document (schemathesis), each answered in-process and undone afterwards."""

from __future__ import annotations

import gzip
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import requests
import schemathesis
from django.db import transaction
from django.test import Client
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis.strategies import SearchStrategy
from schemathesis.checks import not_a_server_error
from schemathesis.core.failures import Failure, FailureGroup
from schemathesis.core.transport import Response
from schemathesis.specs.openapi.checks import content_type_conformance, response_schema_conformance

from accounts.models import LoginToken, User
from webui.api.docs import schema

CHECKS = [not_a_server_error, content_type_conformance, response_schema_conformance]
#: they go on while there is more to come
STREAMS = ("/logs", "metrics-stream", "trials/metrics/", "/profiler/")
#: they ask a machine elsewhere, or wait for others
ELSEWHERE = ("webhooks/{rule_id}/test", "/stack", "signals", "rendezvous", "all_gather", "notify_container")

Wanted = Callable[[str, str], bool]
#: end of a path's beginning, such as `hosts/{name}` -> the value of its last parameter that leads to a row
Places = Mapping[str, object]


@dataclass
class Outcome:
    """`operations` that got `requests`, and what is `wrong` with the answers of each."""

    operations: int = 0
    requests: int = 0
    wrong: list[str] = field(default_factory=list)


class _Enough(BaseException):
    """The time of an operation is over. Not an Exception, for which Hypothesis would look for a smaller example."""


class Generated:
    """Operations that are `wanted` (method, path), each with at most so many examples and its share of the seconds.

    Under load there are fewer requests, one for each operation at least. The same seed draws the same requests.
    """

    def __init__(
        self,
        wanted: Wanted,
        *,
        examples: int,
        places: Places | None = None,
        seconds: float = 3600.0,
        start: int = 7,
    ) -> None:
        self.examples, self.places, self.start = examples, places or {}, start
        self.until = time.monotonic() + seconds
        admin, _ = User.objects.get_or_create(username="root", defaults={"role": User.Role.ADMIN})
        self.headers = {"Authorization": f"Bearer {LoginToken.issue(admin)}"}
        found = [each.ok() for each in schemathesis.openapi.from_dict(schema()).get_all_operations()]
        self.operations = [
            each for each in found if _answers_soon(each) and wanted(each.method.upper(), each.path)
        ]
        self.outcome = Outcome()

    def run(self) -> Outcome:
        for number, operation in enumerate(self.operations):
            left = max(self.until - time.monotonic(), 0.0)
            self._try(operation, time.monotonic() + left / (len(self.operations) - number))
        return self.outcome

    def _try(self, operation: Any, until: float) -> None:
        self.outcome.operations += 1
        is_first = True

        @seed(self.start)
        @settings(
            max_examples=self.examples, database=None, deadline=None, phases=[Phase.generate],
            suppress_health_check=list(HealthCheck),
        )  # fmt: skip
        @given(case=self._cases(operation))
        def one(case: Any) -> None:
            nonlocal is_first
            if not is_first and time.monotonic() > until:
                raise _Enough
            is_first = False
            self._send(case)

        try:
            one()
        except _Enough:
            pass
        except (FailureGroup, Failure) as error:
            said = "; ".join(str(each) for each in getattr(error, "exceptions", [error]))
            self.outcome.wrong.append(f"{operation.method.upper()} {operation.path}: {said}")

    def _cases(self, operation: Any) -> SearchStrategy[Any]:
        """Of anything; of the rows that there are; and the body's example for one of them."""
        strategy: SearchStrategy[Any] = operation.as_strategy()
        known = self._known(operation.path)
        if known:
            strategy |= operation.as_strategy(path_parameters=known)
        content = operation.definition.raw.get("requestBody", {}).get("content", {})
        for media, described in content.items():
            if self.places and "example" in described:
                fixed = {"body": described["example"], "media_type": media}
                strategy |= operation.as_strategy(path_parameters=known, **fixed)
        return strategy

    def _known(self, path: str) -> dict[str, object]:
        found = {place: value for place, value in self.places.items() if f"/{place}" in path}
        return {place.rsplit("{", 1)[1].rstrip("}"): value for place, value in found.items()}

    def _send(self, case: Any) -> None:
        self.outcome.requests += 1
        with transaction.atomic():
            try:
                case.validate_response(_answer(case, self.headers), checks=CHECKS)
            finally:
                transaction.set_rollback(True)


def _answers_soon(operation: Any) -> bool:
    return not any(part in operation.path for part in (*STREAMS, *ELSEWHERE))


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
    if given.headers.get("Content-Encoding") == "gzip":  # as a client of requests would
        content = gzip.decompress(content)
    return Response(
        given.status_code, {name.lower(): [value] for name, value in given.items()}, content, sent, 0.0, False
    )
