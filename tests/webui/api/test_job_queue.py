"""The job queue over REST: its order and numbers, and edits as the CLI sends them."""

from collections.abc import Callable

import pytest

from hosts.models import Host, ResourcePool
from jobs import transitions
from jobs.models import Job, Task
from jobs.states import StopKind
from tests.rig.api import CONFIG, Api, Cast, Json

Submit = Callable[..., Json]


def queue(api: Api, query: str = "") -> list[Json]:
    return [row["full"] for row in api.get(f"job-queues-v2?{query}")["jobs"]]


def give_slots(job_id: str, host: Host, index: int = 0, on_sufferance: bool = False) -> str:
    task = Task.objects.get(job_id=job_id)
    slot = host.slots.get(index=index)
    return transitions.assign(
        task_id=task.pk, placement=[(host.pk, [slot.pk])], on_sufferance=on_sufferance, actor="test"
    ).pk


def test_the_queue_is_in_order_with_what_the_client_reads(cast: Cast, submit: Submit, host: Host) -> None:
    first, second = submit(), submit()
    give_slots(first["jobId"], host)
    rows = queue(cast.vic)
    assert [row["jobId"] for row in rows] == [first["jobId"], second["jobId"]]
    assert {
        "jobId", "entityId", "type", "name", "username", "resourcePool", "submissionTime", "requestedSlots",
        "allocatedSlots", "isPreemptible", "workspaceId",
    } <= rows[0].keys()  # fmt: skip
    assert rows[0]["summary"] == {"state": "STATE_SCHEDULED", "jobsAhead": 0}
    assert rows[1]["summary"] == {"state": "STATE_QUEUED", "jobsAhead": 1}
    assert (rows[0]["allocatedSlots"], rows[0]["requestedSlots"]) == (1, 1)
    assert (rows[1]["allocatedSlots"], rows[1]["position"]) == (0, 2)
    assert rows[0]["type"] == "TYPE_EXPERIMENT"
    assert rows[0]["entityId"] == str(first["id"])
    plain = cast.vic.get("job-queues")["jobs"]
    assert [row["jobId"] for row in plain] == [row["jobId"] for row in rows]


def test_the_queue_filters_turns_and_pages(cast: Cast, submit: Submit, host: Host) -> None:
    first, second, third = submit(), submit(), submit()
    give_slots(first["jobId"], host)
    assert [row["jobId"] for row in queue(cast.vic, "states=STATE_SCHEDULED")] == [first["jobId"]]
    assert [row["jobId"] for row in queue(cast.vic, "orderBy=ORDER_BY_DESC&limit=1")] == [third["jobId"]]
    assert [row["jobId"] for row in queue(cast.vic, "offset=1&limit=1")] == [second["jobId"]]
    assert cast.vic.refused("GET", "job-queues-v2?resourcePool=moon") == (404, "Pool moon not found")
    assert cast.stranger.refused("GET", "job-queues-v2")[0] == 401


def test_backfilled_and_stopping_rows_say_so(cast: Cast, submit: Submit, host: Host) -> None:
    allocation = give_slots(submit()["jobId"], host, on_sufferance=True)
    assert queue(cast.vic)[0]["summary"]["state"] == "STATE_SCHEDULED_BACKFILLED"
    assert queue(cast.vic)[0]["stopping"] is False
    from jobs.states import Reason

    transitions.request_stop(allocation, StopKind.PREEMPT, reason=Reason.PREEMPTED, actor="scheduler")
    assert queue(cast.vic)[0]["stopping"] is True


def test_paused_and_ended_jobs_are_not_in_the_queue(cast: Cast, submit: Submit) -> None:
    paused, ended = submit(), submit()
    cast.ada.post(f"experiments/{paused['id']}/pause")
    cast.ada.post(f"experiments/{ended['id']}/kill")
    assert queue(cast.vic) == []
    cast.ada.post(f"experiments/{paused['id']}/activate")
    assert [row["jobId"] for row in queue(cast.vic)] == [paused["jobId"]]


def test_the_reason_and_the_forecast_come_from_the_plan(
    cast: Cast, submit: Submit, pool: ResourcePool
) -> None:
    job_id = submit()["jobId"]
    task = Task.objects.get(job_id=job_id)
    wait = {"code": "no_room", "sentence": "no slot is free", "data": {}}
    ResourcePool.objects.filter(pk=pool.pk).update(
        plan={"order": [job_id], "waits": {task.pk: wait}, "forecast": {task.pk: [10.0, 20.0]}}
    )
    row = queue(cast.vic)[0]
    assert row["reason"] == wait
    assert row["forecast"] == [10.0, 20.0]
    answer = cast.vic.get(f"jobs/{job_id[:8]}/explain")
    assert answer["tasks"][0]["reason"] == wait
    assert answer["summary"]["jobsAhead"] == 0
    assert cast.vic.refused("GET", "jobs/ffffffff-0000/explain")[0] == 404


def test_the_documented_scenario_over_rest(cast: Cast, submit: Submit) -> None:
    """S4-28, run by an editor: ahead-of with short ids, then both to priority 1 in one batch."""
    job1, job2 = submit()["jobId"], submit()["jobId"]
    cast.ada.post("job-queues", {"updates": [{"jobId": job2[:8], "aheadOf": job1[:8]}]})
    assert [row["jobId"] for row in queue(cast.ada)] == [job2, job1]
    changes = cast.ada.post(
        "job-queues", {"updates": [{"jobId": job1, "priority": 1}, {"jobId": job2, "priority": 1}]}
    )["changes"]
    assert "it now has priority 1" in changes[0]
    assert [(row["jobId"], row["priority"]) for row in queue(cast.ada)] == [(job2, 1), (job1, 1)]


def test_two_fields_of_one_job_take_effect_together(cast: Cast, submit: Submit) -> None:
    job1, job2 = submit()["jobId"], submit()["jobId"]
    cast.ada.post("job-queues", {"updates": [{"jobId": job2, "priority": 42, "aheadOf": job1}]})
    assert [row["jobId"] for row in queue(cast.ada)] == [job2, job1]
    cast.ada.post("job-queues", {"updates": [{"jobId": job1, "toTop": True}]})
    assert [row["jobId"] for row in queue(cast.ada)] == [job1, job2]


@pytest.mark.parametrize("priority", [0, 100, 1.5, "x"])
def test_a_wrong_priority_has_one_sentence_and_changes_nothing(
    cast: Cast, submit: Submit, priority: object
) -> None:
    job1, job2 = submit()["jobId"], submit()["jobId"]
    body = {"updates": [{"jobId": job1, "priority": 1}, {"jobId": job2, "priority": priority}]}
    status, sentence = cast.ada.refused("POST", "job-queues", body)
    assert status == 400
    assert sentence == f"priority must be between 1 and 99; 1 is the highest. Found: {priority}."
    assert set(Job.objects.values_list("priority", flat=True)) == {42}


def test_an_unknown_job_and_another_owners_job_are_refused(cast: Cast, submit: Submit) -> None:
    job = submit()["jobId"]
    assert cast.ada.refused("POST", "job-queues", {"updates": [{"jobId": "zzz", "priority": 1}]}) == (
        400, "job zzz not found",
    )  # fmt: skip
    assert cast.bob.post("job-queues", {"updates": [{"jobId": job, "priority": 2}]})["undo"] is True
    ResourcePool.objects.update(strict=True)
    assert (
        "belongs to ada"
        in cast.bob.refused("POST", "job-queues", {"updates": [{"jobId": job, "priority": 1}]})[1]
    )
    assert cast.vic.refused("POST", "job-queues", {"updates": []})[0] == 403
    assert cast.admin.post("job-queues", {"updates": [{"jobId": job, "priority": 1}]})


def test_a_job_moves_to_another_pool(cast: Cast, submit: Submit) -> None:
    ResourcePool.objects.create(name="big")
    record = submit()
    cast.ada.post("job-queues", {"updates": [{"jobId": record["jobId"], "resourcePool": "big"}]})
    assert queue(cast.ada) == []
    assert [row["jobId"] for row in queue(cast.ada, "resourcePool=big")] == [record["jobId"]]
    shown = cast.ada.get(f"experiments/{record['id']}")["experiment"]
    assert shown["resourcePool"] == shown["config"]["resources"]["resource_pool"] == "big"


def test_a_fair_share_pool_reports_no_order(cast: Cast, submit: Submit) -> None:
    ResourcePool.objects.create(name="fair", scheduler="fair_share")
    submit(config=CONFIG.replace("slots_per_trial: 1", "resource_pool: fair"))
    row = queue(cast.ada, "resourcePool=fair")[0]
    assert row["summary"]["jobsAhead"] == -1
    assert "position" not in row


def test_stats_count_what_waits_and_runs(cast: Cast, submit: Submit, host: Host) -> None:
    give_slots(submit()["jobId"], host)
    submit()
    result = cast.vic.get("job-queues/stats")["results"][0]
    assert result["resourcePool"] == "default"
    assert result["stats"] == {"queuedCount": 1, "scheduledCount": 1}
    assert result["aggregates"][0]["seconds"] >= 0


def test_a_thousand_jobs_cost_a_fixed_number_of_queries(
    cast: Cast, submit: Submit, django_assert_max_num_queries: Callable[[int], object]
) -> None:
    for _ in range(4):
        submit()
    with django_assert_max_num_queries(7):  # type: ignore[attr-defined]
        assert len(queue(cast.ada)) == 4
