"""What a pass stores and tells: what has changed of its plan; and what causes no pass at all."""

import json
from datetime import timedelta
from typing import Any

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext
from hypothesis import given, settings
from hypothesis import strategies as some

from dispatch.passes import kept_plan, last_plan, pool_pass
from dispatch.passes.kept_plan import changed, difference
from dispatch.runs import heartbeats, intake
from events import announce
from hosts import observe
from hosts.models import PoolPlan
from hosts.pools import default_pool, mark_dirty
from jobs import transitions
from jobs.states import Reason
from tests.rig.many import make_commands
from tests.rig.world import make_host, make_user, members_of, submit_experiment, trial_of

values = some.integers(0, 2) | some.lists(some.integers(0, 2), max_size=2)
parts = some.dictionaries(
    some.sampled_from("abc"), values | some.dictionaries(some.sampled_from("xyz"), values)
)


@settings(max_examples=50)
@given(was=parts, now=parts)
def test_a_document_with_its_changes_is_the_next_document(was: dict[str, Any], now: dict[str, Any]) -> None:
    changes = json.loads(json.dumps(difference(was, now)))
    assert {**changed(was, changes), **{part: None for part in was if part not in now}} == {
        **dict.fromkeys(was),
        **now,
    }


def hints() -> Any:
    """What this test's transaction has to tell so far; the next call begins anew."""
    found = announce._pending()
    connection.run_on_commit.clear()
    return found


@pytest.mark.django_db
def test_only_a_plan_that_reads_otherwise_is_written_and_told() -> None:
    make_host("gpu1", 2)
    pool = default_pool()
    topic = f"plan:{pool.pk}"
    make_commands(pool, make_user(), 60, slots=4)
    pool_pass.run(pool.pk)
    first = PoolPlan.objects.get()
    mark_dirty(pool.pk)
    hints()
    with CaptureQueriesContext(connection) as queries:
        pool_pass.run(pool.pk)
    assert topic not in hints().topics, "the pass of an idle pool wakes no page"
    assert not [query for query in queries if "hosts_poolplan SET changes" in query["sql"]]
    added = submit_experiment(slots=3)
    pool_pass.run(pool.pk)
    assert topic in hints().topics
    second = PoolPlan.objects.get()
    assert (second.document, second.written_at) == (first.document, first.written_at)
    assert list(second.changes["put"]["waits"]) == [trial_of(added).task_id]
    pool.refresh_from_db()
    assert len(last_plan.of(pool).waits) == 61
    kept_plan._known.clear()  # as another process reads it
    last_plan._latest.clear()
    assert last_plan.of(pool).waits[trial_of(added).task_id]["code"] == "never_fits"


@pytest.mark.django_db
def test_lines_events_of_the_log_and_heartbeats_cause_no_pass() -> None:
    make_host("gpu1", 1)
    experiment = submit_experiment()
    pool_pass.run(default_pool().pk)
    [member] = members_of(experiment)
    transitions.member_launched(member.pk, boot_id="1")
    transitions.member_running(member.pk)
    while pool_pass.run(default_pool().pk):
        pass
    line = json.dumps({"k": "log", "t": 1.0, "s": "stdout", "r": 0, "d": "step 1"}).encode() + b"\n"
    assert intake.store(member.pk, 0, line).offset == len(line)
    heartbeats.heartbeat(member.pk, {"state": "running", "spool_bytes": 7})
    member.refresh_from_db()
    transitions.tell(member.allocation, Reason.LOG_POLICY, {"policy": "oom", "line": "out of memory"})
    observe.seen(member.host_id)
    planned_at = default_pool().planned_at
    assert planned_at is not None and pool_pass.due_pools(planned_at + timedelta(seconds=1)) == []
