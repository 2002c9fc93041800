"""The start page of a person: what of theirs runs, waits and failed since they looked, and what ends soon."""

from __future__ import annotations

import pytest
from django.test import Client
from django.utils import timezone

from dispatch.passes import pool_pass
from dispatch.runs import settle
from hosts.models import ResourcePool
from hosts.pools import default_pool
from jobs import transitions
from shown import overview
from tests.rig.world import make_host, make_user, members_of, submit_experiment

pytestmark = pytest.mark.django_db


def test_runs_waits_failures_and_ends_are_listed_until_they_are_seen() -> None:
    make_host("gpu1", slots=1)
    ada = make_user()
    failed = submit_experiment(name="failed", max_restarts=0)
    pool_pass.run(default_pool().pk)
    (member,) = members_of(failed)
    transitions.member_launched(member.pk, boot_id="b")
    transitions.member_running(member.pk)
    settle.member_exited(member.pk, code=3, signal=None, ended_at=1.0, first_failure=None, boot_id="b")
    runs = submit_experiment(name="runs", max_time="1h")
    waits = submit_experiment(name="waits")
    submit_experiment(name="another's", owner=make_user("bob"))
    pool_pass.run(default_pool().pk)
    ResourcePool.objects.update(planned_at=None)
    pool_pass.run(default_pool().pk)  # which knows when what the first has started ends

    found = overview.of(ada, timezone.now())
    assert [row.entity_id for _, row in found.running] == [str(runs.pk)]
    assert [row.entity_id for _, row in found.waiting] == [str(waits.pk)] and found.waiting[0][1].why
    assert (found.running_jobs, found.waiting_jobs, found.paused_jobs) == (1, 1, 0)
    (failure,) = found.failed
    assert found.failed_jobs == 1 and failure.name == "failed" and "exit code 3" in failure.sentence
    assert failure.again == ("Continue", f"/experiments/{failed.pk}/continue")
    (ending,) = found.ending
    assert (ending.name, ending.slots, ending.pool) == ("runs", 1, "default") and "Ends " in ending.span
    assert [(pool.name, pool.used_slots) for pool in found.pools] == [("default", 1)]

    client = Client()
    client.force_login(ada)
    page = client.get("/overview").content.decode()
    assert "Failed since you last looked" in page and "exit code 3" in page and "another" not in page
    assert f'<a href="/jobs/job/{waits.job_id}">why</a>' in page
    assert client.get("/").url == "/overview"  # type: ignore[attr-defined]
    assert "until" in page and client.post("/overview/seen").status_code == 302
    assert len(overview.of(ada, timezone.now()).failed) == 1, "nothing was said to be seen"
    client.post("/overview/seen", {"until": failure.ended_at.isoformat()})
    ada.refresh_from_db()
    assert overview.of(ada, timezone.now()).failed == []
    assert "Failed since you last looked" not in client.get("/overview?part").content.decode()
