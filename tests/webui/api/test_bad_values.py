"""Values that nobody can store or count with are refused with a sentence, wherever they come in."""

from typing import Any

import pytest

from hosts.models import Host
from tests.rig.api import Cast

CANNOT_BE_STORED = "A value in the request cannot be stored"
PERIOD = "resources/allocation/aggregated?period=RESOURCE_ALLOCATION_AGGREGATION_PERIOD"


@pytest.mark.parametrize(
    "path, body, sentence",
    [
        (
            "commands",
            {"config": {"entrypoint": "a\0b"}},
            "<config>.entrypoint: found text that contains U+0000",
        ),
        (
            "commands",
            {"config": {"entrypoint": ["a", "\ud800"]}},
            "<config>.entrypoint[1]: found text that contains",
        ),
        (
            "commands",
            {"config": {"entrypoint": "a", "resources": {"slots": 10**12}}},
            "<config>.resources.slots: found 1000000000000, allowed: 2147483647 or less",
        ),
        (
            "commands",
            {"config": {"entrypoint": "a"}, "files": [{"path": "f", "type": "x"}]},
            "must be numbers",
        ),
        ("commands", {"config": {"entrypoint": "a"}, "files": [{"path": "f", "content": [1]}]}, "not base64"),
        ("resource-pools", {"name": "b", "description": "\0"}, CANNOT_BE_STORED),
    ],
)
def test_what_cannot_be_stored_is_refused(
    cast: Cast, host: Host, path: str, body: dict[str, Any], sentence: str
) -> None:
    status, said = cast.admin.refused("POST", path, body)
    assert status == 400 and sentence in said


@pytest.mark.parametrize("path", ["agents/%00", "agents/gpu1/slots/²", "resource-pools/%00"])
def test_there_is_nothing_of_such_a_name(cast: Cast, host: Host, path: str) -> None:
    assert cast.admin.refused("GET", path)[0] in {400, 404}


def test_a_page_behind_the_last_is_empty(cast: Cast, host: Host) -> None:
    assert cast.admin.get(f"job-queues-v2?offset={10**30}")["jobs"] == []


@pytest.mark.parametrize(
    "query", ["_DAILY&startDate=9999-12-31&endDate=9999-12-31", "_MONTHLY&startDate=9999-12&endDate=9999-12"]
)
def test_usage_has_no_period_at_the_end_of_time(cast: Cast, query: str) -> None:
    status, said = cast.admin.refused("GET", PERIOD + query)
    assert status == 400 and "before the year 9999" in said
