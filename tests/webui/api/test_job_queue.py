"""The job queue over REST: its order and numbers, and edits as the CLI sends them."""

from collections.abc import Callable

import pytest

from dispatch.passes import pool_pass
from events.models import Event
from hosts.models import Host, PoolPlan, ResourcePool
from hosts.pools import default_pool, mark_dirty
from jobs import transitions
from jobs.models import Job, Task
from jobs.states import Reason, StopKind
from notifications.occurrences import of_event
from tests.rig.api import CONFIG, Api, Cast, Json
from tests.rig.world import assigned, keep_plan, make_host, submit_experiment

Submit = Callable[..., Json]


def queue(api: Api, query: str = "") -> list[Json]:
    return [row["full"] for row in api.get(f"job-queues-v2?{query}")["jobs"]]


def give_slots(
    job_id: str, host: Host, index: int = 0, on_sufferance: bool = False, task: Task | None = None
) -> str:
    task = task or Task.objects.get(job_id=job_id)
    slot = host.slots.get(index=index)
    return assigned(
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
    transitions.request_stop(allocation, StopKind.PREEMPT, reason=Reason.PREEMPTED, actor="scheduler")
    assert queue(cast.vic)[0]["stopping"] is True
    assert queue(cast.vic)[0]["leaving"] == "pausing"
    transitions.preempt_acknowledged(allocation)
    assert queue(cast.vic)[0]["leaving"] == "saving"


def test_what_pauses_is_said_to_pause_and_how_much_of_it(cast: Cast, submit: Submit, host: Host) -> None:
    record = submit()
    give_slots(record["jobId"], host)
    assert "leaving" not in queue(cast.vic)[0]
    cast.ada.post(f"experiments/{record['id']}/pause")
    row = queue(cast.vic)[0]
    assert (row["summary"]["state"], row["leaving"]) == ("STATE_SCHEDULED", "pausing")
    assert cast.vic.get(f"jobs/{record['jobId']}/explain")["leaving"] == "pausing"


def test_of_several_runs_the_row_says_how_many_leave(cast: Cast, submit: Submit, host: Host) -> None:
    job = Job.objects.get(pk=submit()["jobId"])
    runs = [give_slots(str(job.pk), host, 0)]
    other = transitions.create_task(
        job=job, task_id="other", kind=Task.Kind.TRIAL, name="b", slots=1, single_host=False, actor="test"
    )
    runs.append(give_slots(str(job.pk), host, 1, task=other))
    transitions.request_stop(runs[0], StopKind.PREEMPT, reason=Reason.PREEMPTED, actor="scheduler")
    row = queue(cast.vic)[0]
    assert (row["leaving"], row["allocatedSlots"], row["requestedSlots"]) == ("1 of 2 pausing", 2, 2)


def test_the_queue_of_one_user_keeps_the_places_of_all(cast: Cast, submit: Submit) -> None:
    submit()
    mine = submit(by=cast.bob)["jobId"]
    rows = queue(cast.vic, "users=bob")
    assert [(row["jobId"], row["summary"]["jobsAhead"]) for row in rows] == [(mine, 1)]
    assert queue(cast.vic, "users=nobody") == []


def test_a_page_beyond_the_end_is_empty_and_says_how_many_there_are(cast: Cast, submit: Submit) -> None:
    submit()
    answer = cast.vic.get("job-queues-v2?offset=5&limit=10")
    assert (answer["jobs"], answer["pagination"]["total"]) == ([], 1)
    assert cast.vic.get("job-queues-v2?limit=-2")["pagination"]["total"] == 1


def test_paused_and_ended_jobs_are_not_in_the_queue(cast: Cast, submit: Submit) -> None:
    paused, ended = submit(), submit()
    cast.ada.post(f"experiments/{paused['id']}/pause")
    cast.ada.post(f"experiments/{ended['id']}/kill")
    assert queue(cast.vic) == []
    later = submit()
    cast.ada.post(f"experiments/{paused['id']}/activate")
    assert [row["jobId"] for row in queue(cast.vic)] == [paused["jobId"], later["jobId"]], "at its old place"


def test_the_reason_and_the_forecast_come_from_the_plan(
    cast: Cast, submit: Submit, pool: ResourcePool
) -> None:
    job_id = submit()["jobId"]
    task = Task.objects.get(job_id=job_id)
    wait = {"code": "no_room", "sentence": "no slot is free", "data": {}}
    keep_plan(pool, order=[job_id], waits={task.pk: wait}, forecast={task.pk: [10.0, 20.0]})
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
    assert "it gets priority 1" in changes[0]
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


def test_the_master_says_that_a_pool_is_strict(cast: Cast, submit: Submit) -> None:
    submit()
    assert cast.vic.get("master")["strictJobQueueControl"] is False
    ResourcePool.objects.update(strict=True)
    assert cast.vic.get("master")["strictJobQueueControl"] is True


def test_a_pool_bounds_the_priorities_that_a_role_may_give(cast: Cast, submit: Submit) -> None:
    top, mine = submit(by=cast.admin)["jobId"], submit()["jobId"]
    cast.admin.post("job-queues", {"updates": [{"jobId": top, "priority": 5}]})
    ResourcePool.objects.update(priority_floor={"editor": 10})
    sentence = "an editor cannot set a priority higher than 10 in resource pool default. Found: 5."
    for change in ({"priority": 5}, {"aheadOf": top}, {"toTop": True}, {"position": 1}):
        assert cast.ada.refused("POST", "job-queues", {"updates": [{"jobId": mine, **change}]}) == (
            400,
            sentence,
        )
    submission = {"config": CONFIG.replace("slots_per_trial: 1", "priority: 5")}
    assert cast.ada.refused("POST", "experiments", submission) == (400, sentence)
    assert cast.ada.post("job-queues", {"updates": [{"jobId": mine, "priority": 10}]})
    assert cast.admin.post("job-queues", {"updates": [{"jobId": mine, "priority": 1}]})
    assert cast.ada.post("job-queues", {"updates": [{"jobId": mine, "priority": 2}]}), (
        "down is always allowed"
    )


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
    with django_assert_max_num_queries(8):  # type: ignore[attr-defined]
        assert len(queue(cast.ada)) == 4


def test_an_edit_is_previewed_made_and_undone(cast: Cast, submit: Submit, host: Host) -> None:
    first, second = submit()["jobId"], submit()["jobId"]
    body = {"updates": [{"jobId": second, "position": 1}]}
    found = cast.ada.post("job-queues/preview", body)
    assert [(row["jobId"], row["place"], row["was"]) for row in found["order"]] == [
        (second, 0, 1),
        (first, 1, 0),
    ]
    assert (found["stops"], found["stopsOthers"], found["movedJobs"]) == ([], False, 2)
    assert found["starts"] == [{"jobId": second, "now": True}]
    assert [row["jobId"] for row in queue(cast.ada)] == [first, second], "a preview changes nothing"
    assert cast.ada.post("job-queues", body) == {"changes": found["changes"], "undo": True}
    assert [row["jobId"] for row in queue(cast.ada)] == [second, first]
    undone = cast.ada.post("job-queues/undo")["changes"]
    assert undone == [f"Job {second[:8]}: it has its former position."]
    assert [row["jobId"] for row in queue(cast.ada)] == [first, second]
    assert cast.ada.refused("POST", "job-queues/undo") == (
        400, "you have made no edit that can be undone in the last 15 minutes",
    )  # fmt: skip
    edits = cast.vic.get(f"job-queues/{second}/edits")["edits"]
    assert [(edit["user"], edit["change"], edit.get("undo")) for edit in edits] == [
        ("ada", "moved", True), ("ada", "moved", None),
    ]  # fmt: skip
    assert cast.vic.get(f"jobs/{second}/explain")["edits"] == edits


def test_a_preview_says_who_would_be_stopped_and_what_they_saved(
    cast: Cast, submit: Submit, host: Host
) -> None:
    for index in range(2):
        give_slots(submit(by=cast.bob)["jobId"], host, index)
    mine = submit()["jobId"]
    found = cast.ada.post("job-queues/preview", {"updates": [{"jobId": mine, "toTop": True}]})
    assert found["stopsOthers"] is True
    (stop,) = found["stops"]
    assert {
        "jobId",
        "name",
        "username",
        "slots",
        "runs",
        "neverSaved",
        "startedAt",
        "mine",
        "stepsAgain",
        "resumes",
        "group",
    } == stop.keys()
    assert (stop["username"], stop["slots"], stop["neverSaved"], stop["mine"]) == ("bob", 1, True, False)
    (start,) = found["starts"]
    assert start["now"] is False and start["reason"]
    assert not Job.objects.filter(pk=mine, moved_at__isnull=False).exists()


def test_viewers_and_runs_neither_preview_nor_undo(cast: Cast, submit: Submit) -> None:
    job = submit()["jobId"]
    for path in ("job-queues", "job-queues/preview", "job-queues/undo"):
        body = {"updates": [{"jobId": job, "priority": 1}]}
        assert cast.vic.refused("POST", path, body) == (403, "vic is a viewer and cannot change anything.")


REFUSED = [
    ({"priority": 0}, "priority must be between 1 and 99; 1 is the highest. Found: 0."),
    ({"priority": 100}, "priority must be between 1 and 99; 1 is the highest. Found: 100."),
    ({"priority": 1.5}, "priority must be between 1 and 99; 1 is the highest. Found: 1.5."),
    ({"priority": "x"}, "priority must be between 1 and 99; 1 is the highest. Found: x."),
    ({"weight": 2.0}, "weight has no effect in resource pool default, whose scheduler is priority; set priority"),
    ({"weight": 0}, "weight must be greater than 0. Found: 0."),
    ({"weight": 10**309}, f"weight must be greater than 0. Found: {10**309}."),
    ({"position": 0}, "position must be a whole number between 1 and 2; 1 is the first. Found: 0."),
    ({"position": 1.5}, "position must be a whole number between 1 and 2; 1 is the first. Found: 1.5."),
    ({"position": 3}, "position must be a whole number between 1 and 2; 1 is the first. Found: 3."),
    ({"resourcePool": "moon"}, "invalid resource pool name moon; the pools are: default, fair"),
    ({"resourcePool": "default"}, "resource pool is unchanged (default == default)"),
    ({"aheadOf": "ffffffff-ffff"}, "job ffffffff-ffff not found"),
    ({"toTop": True, "position": 1}, "a job can be moved ahead of a job, behind a job, to the top or to a position: "
     "give only one of these"),
    ({}, "no change was given for job {mine}"),
    ({"aheadOf": "{fair}"}, "job {fair:.8} is in resource pool fair, job {mine:.8} in default"),
]  # fmt: skip
REFUSED_IN_FAIR_SHARE = [
    (
        {"position": 1},
        "unable to perform operation on resource pool with fair_share: its jobs have no positions",
    ),
    (
        {"toTop": True},
        "unable to perform operation on resource pool with fair_share: its jobs have no positions",
    ),
    (
        {"aheadOf": "{fair}"},
        "unable to perform operation on resource pool with fair_share: its jobs have no positions",
    ),
    (
        {"priority": 3},
        "priority has no effect in resource pool fair, whose scheduler is fair_share; set weight",
    ),
    ({"weight": 0}, "weight must be greater than 0. Found: 0."),
]


@pytest.mark.parametrize("path", ["job-queues", "job-queues/preview"])
@pytest.mark.parametrize(
    ("job", "change", "sentence"),
    [("mine", *row) for row in REFUSED] + [("fair", *row) for row in REFUSED_IN_FAIR_SHARE],
)
def test_what_is_refused_has_one_sentence(
    cast: Cast, submit: Submit, path: str, job: str, change: Json, sentence: str
) -> None:
    ResourcePool.objects.create(name="fair", scheduler="fair_share")
    fair = submit(config=CONFIG.replace("slots_per_trial: 1", "resource_pool: fair"))["jobId"]
    ids = {"mine": submit()["jobId"], "fair": fair}
    submit()
    wanted = {
        name: value.format(**ids) if isinstance(value, str) else value for name, value in change.items()
    }
    refused = cast.ada.refused("POST", path, {"updates": [{"jobId": ids[job], **wanted}]})
    assert refused == (400, sentence.format(**ids))


@pytest.mark.parametrize("path", ["job-queues", "job-queues/preview"])
def test_a_command_stays_in_its_pool(cast: Cast, host: Host, path: str) -> None:
    ResourcePool.objects.create(name="big")
    job = cast.ada.post("commands", {"config": {"entrypoint": ["true"]}})["command"]["jobId"]
    assert cast.ada.refused("POST", path, {"updates": [{"jobId": job, "resourcePool": "big"}]}) == (
        400,
        "setting resource pool for job type COMMAND is not supported; "
        f"cancel job {job[:8]} and submit it again in resource pool big",
    )


def test_a_deadline_moves_a_command_ahead_and_is_shown(cast: Cast) -> None:
    make_host("gpu1", 1)
    submit_experiment(slots=1, max_time="1h")
    pool_pass.run(default_pool().pk)

    def submitted(**resources: object) -> Job:
        config = {"entrypoint": "x", "resources": {"slots": 1, "max_time": "2h", **resources}}
        return Job.objects.get(pk=cast.admin.post("commands", {"config": config})["command"]["jobId"])

    first, due = submitted(), submitted()
    pool_pass.run(default_pool().pk)
    update = {"updates": [{"jobId": str(due.pk), "deadline": "3h20m"}]}
    preview = cast.admin.post("job-queues/preview", update)
    assert preview["starts"][0]["deadline"].endswith(f"it will go ahead of cmd {first.entity_id[:8]}")
    cast.admin.post("job-queues", update)
    for _ in range(2):  # the first has it moved ahead; forecasts are made every few seconds
        PoolPlan.objects.update(forecast_at=None)
        pool_pass.one(default_pool().pk)
    rows = {row["jobId"]: row for row in cast.vic.get("job-queues?limit=10")["jobs"]}
    assert "deadline" not in rows[str(first.pk)]
    row, told = rows[str(due.pk)], cast.vic.get(f"jobs/{due.pk}/explain")
    assert row["position"] == 2 and row["deadline"] == told["deadline"]
    assert row["deadlineOutlook"] == told["deadlineOutlook"]
    assert told["deadlineOutlook"]["movedAhead"] and told["deadlineOutlook"]["outcome"] == "met"
    assert row["reason"]["sentence"].endswith("; it was moved ahead for that")
    event = Event.objects.get(kind=Event.Kind.JOB, reason=Reason.DEADLINE_AHEAD)
    assert event.detail["passes"] == f"cmd {first.entity_id[:8]}" and event.actor == "scheduler"
    cast.admin.post("job-queues", {"updates": [{"jobId": str(due.pk), "deadline": None}]})
    rows = {row["jobId"]: row for row in cast.vic.get("job-queues?limit=10")["jobs"]}
    assert rows[str(due.pk)]["position"] == 3 and "deadline" not in rows[str(due.pk)]
    assert cast.admin.post("job-queues/undo", {})["changes"]
    due.refresh_from_db()
    assert due.deadline_at is not None and due.usual_position is not None


def test_a_deadline_that_cannot_be_met_is_told_once(cast: Cast) -> None:
    make_host("gpu1", 1)
    submit_experiment(slots=1, max_time="2h")
    pool_pass.run(default_pool().pk)
    config = {"entrypoint": "x", "resources": {"slots": 1, "max_time": "3h", "deadline": "25m"}}
    cast.admin.post("commands", {"config": config})
    pool_pass.run(default_pool().pk)
    mark_dirty(default_pool().pk)
    pool_pass.run(default_pool().pk)
    event = Event.objects.get(reason=Reason.DEADLINE_LATE)
    found = of_event(event)
    assert found is not None and "cannot meet its deadline" in found.facts["sentence"]


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ("soon", "deadline must be a date and time such as 2026-12-01T08:00"),
        ("2020-01-01", "deadline must be in the future. Found: 2020-01-01 00:00 UTC."),
        ([1], "deadline must be a date and time"),
    ],
)
def test_a_deadline_that_makes_no_sense_is_refused(
    cast: Cast, submit: Submit, given: object, says: str
) -> None:
    update = {"jobId": submit()["jobId"], "deadline": given}
    status, sentence = cast.admin.refused("POST", "job-queues", {"updates": [update]})
    assert status == 400 and sentence.startswith(says)
