"""Requests that nobody wrote: drawn from the OpenAPI document, answered as it says, and never with a 5xx."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from hosts.models import Host
from tests.rig.api import Json
from tests.rig.generated import answered

#: beside everything that only reads: what makes rows and starts nothing
MAKES = {
    "/api/v1/tokens", "/api/v1/users", "/api/v1/users/setting", "/api/v1/webhooks", "/api/v1/webhooks/custom",
    "/api/v1/workspaces", "/api/v1/templates/{name}", "/api/v1/resource-pools", "/api/v1/job-queues/preview",
}  # fmt: skip


def test_a_few_requests_of_each_kind_are_answered_as_described(
    submit: Callable[..., Json], host: Host
) -> None:
    submit()
    tried, wrong = answered(lambda method, path: method == "GET" or path in MAKES, examples=1)
    assert not wrong, "\n\n".join(wrong)
    assert tried > 80


@pytest.mark.chaos
def test_many_requests_of_every_kind_are_answered_as_described(
    submit: Callable[..., Json], host: Host
) -> None:
    submit()
    tried, wrong = answered(lambda method, path: True, examples=15)
    assert not wrong, "\n\n".join(wrong)
    assert tried > 180
