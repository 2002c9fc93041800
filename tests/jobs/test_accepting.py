"""What a submission must pass before it is a job."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from accounts.refusals import Refusal
from hosts import pool_edits
from hosts.pools import default_pool
from jobs import accepting, deadlines
from tests.rig.world import make_user

pytestmark = pytest.mark.django_db


def test_pool_and_time_limit_are_written_where_the_config_names_none() -> None:
    pool_edits.create("aux", {"default_aux": True, "default_max_time_seconds": 60}, actor="user:ada")
    resources: dict[str, Any] = {"resource_pool": "", "priority": None, "max_time": None}
    assert accepting.settle(resources, 0, owner=make_user(), role="editor").name == "aux"
    assert resources == {"resource_pool": "aux", "priority": None, "max_time": 60}
    assert accepting.settle({}, 1, owner=make_user(), role="editor") == default_pool()


@pytest.mark.parametrize(
    ("asked", "sentence"),
    [
        ({"resource_pool": "moon"}, "resource pool moon does not exist; the pools are: a100, default."),
        (
            {"resource_pool": "a100", "priority": 3},
            "an editor cannot set a priority higher than 20 in resource pool a100. Found: 3.",
        ),
        (
            {"resource_pool": "a100", "max_time": 61},
            "resources.max_time: found 61 s, allowed: at most 60 s in resource pool a100.",
        ),
    ],
)
def test_what_the_pool_does_not_allow_is_refused(asked: dict[str, Any], sentence: str) -> None:
    rules = {"priority_floor": {"editor": 20}, "longest_max_time_seconds": 60}
    pool_edits.create("a100", rules, actor="user:ada")
    with pytest.raises(Refusal) as caught:
        accepting.settle(asked, 1, owner=make_user(), role="editor")
    assert str(caught.value) == sentence


def test_a_deadline_is_a_time_or_counts_from_the_submission() -> None:
    now = datetime(2026, 11, 28, 9, tzinfo=UTC)
    assert deadlines.of({}, now) is None
    assert deadlines.of({"deadline": 7200}, now) == now + timedelta(hours=2)
    assert deadlines.of({"deadline": "2026-12-01T07:00:00+00:00"}, now) == datetime(
        2026, 12, 1, 7, tzinfo=UTC
    )


@pytest.mark.parametrize(
    ("asked", "slots", "why"),
    [
        ({"deadline": "2026-01-01T08:00:00+00:00", "max_time": 60}, 1, "2026-01-01 08:00 UTC is in the past"),
        ({"deadline": 7200, "max_time": 60}, 0, "work without slots does not wait for slots"),
        (
            {"deadline": 7200, "max_time": 60, "resource_pool": "shared"},
            1,
            "resource pool shared shares slots by",
        ),
    ],
)
def test_a_deadline_that_makes_no_sense_is_refused(asked: dict[str, Any], slots: int, why: str) -> None:
    pool_edits.create("shared", {"scheduler": "fair_share"}, actor="user:ada")
    with pytest.raises(Refusal) as caught:
        accepting.settle(asked, slots, owner=make_user(), role="editor")
    assert str(caught.value).startswith(f"resources.deadline: {why}") and caught.value.field == "deadline"
