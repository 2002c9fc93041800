"""A pass on real rows: who starts, who is stopped, why the others wait; and any number of ticks at once."""

import math
import uuid
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta

import pytest
from django.conf import LazySettings
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from accounts.refusals import Refusal
from commands import submit
from commands.config import check
from dispatch import tasks
from dispatch.passes import forecast_outcomes, kept_plan, last_plan, pool_pass, recent_work, survey
from dispatch.passes.apply import apply
from dispatch.runs import settle
from events.models import Event
from experiments import transitions as experiments
from experiments.models import Experiment
from hosts.models import Host, PoolChange, PoolPlan, ResourcePool
from hosts.pools import default_pool, mark_dirty
from jobs import queue_edits, queue_order
from jobs.models import Allocation, ForecastOutcome, Job, Member, SlotHold, Task
from jobs.states import AllocationState, Reason, StopKind, TaskState
from scheduling import forecast
from scheduling.calibration import place
from scheduling.explain import explain
from scheduling.past_runs import Work
from scheduling.plan import decide
from scheduling.promises import Promise
from shown import forecasts
from submissions import contexts
from tests.rig.world import (
    assigned,
    attempt_of,
    keep_plan,
    make_host,
    make_user,
    members_of,
    plan_of,
    submit_experiment,
    trial_of,
)


def run_pass() -> int:
    return pool_pass.run(default_pool().pk)


@pytest.mark.django_db
def test_a_gang_gets_whole_equal_hosts_and_consecutive_members() -> None:
    make_host("gpu1", 2), make_host("gpu2", 2)
    experiment = submit_experiment(slots=4)
    run_pass()
    members = list(attempt_of(experiment).members.order_by("index"))
    assert [member.slots for member in members] == [2, 2]
    assert len({member.host_id for member in members}) == 2


@pytest.mark.django_db
def test_many_starts_take_no_more_statements_than_a_few() -> None:
    make_host("gpu1", 24)

    def statements(jobs: int) -> int:
        for _ in range(jobs):
            submit_experiment(slots=1)
        snapshot = survey.take(default_pool(), timezone.now())
        with CaptureQueriesContext(connection) as captured:
            assert apply(decide(snapshot)).started == jobs
        return len(captured)

    statements(1)  # what is read once a process
    assert statements(20) == statements(2)


@pytest.mark.django_db
def test_a_slot_that_was_taken_since_the_survey_costs_its_own_start_alone() -> None:
    make_host("gpu1", 3)
    experiments_of = [submit_experiment(slots=1) for _ in range(3)]
    plan = decide(survey.take(default_pool(), timezone.now()))
    taken = plan.starts[1]
    other = submit_experiment(slots=1)
    (host, slots) = taken.hosts[0]
    assigned(
        task_id=trial_of(other).task_id,
        placement=[(uuid.UUID(host), slots)],
        on_sufferance=False,
        actor="scheduler",
    )
    assert apply(plan).started == 2
    states = dict(Task.objects.filter(trial__experiment__in=experiments_of).values_list("pk", "state"))
    assert states.pop(taken.task_id) == TaskState.WAITING
    assert [*states.values()] == [TaskState.RUNNING, TaskState.RUNNING]
    assert Allocation.objects.count() == SlotHold.objects.count() == 3


@pytest.mark.django_db
def test_twelve_slots_on_hosts_of_eight_wait_and_say_why() -> None:
    make_host("gpu1", 8), make_host("gpu2", 8)
    experiment = submit_experiment(slots=12)
    run_pass()
    pool = default_pool()
    wait = plan_of(pool)["waits"][trial_of(experiment).task_id]
    assert wait["code"] == "never_fits" and "needs 12 slots" in wait["sentence"]
    assert queue_order.places(pool) == [experiment.job_id]
    assert not Allocation.objects.exists()


@pytest.mark.django_db
def test_nothing_starts_on_a_host_that_is_silent_disabled_draining_or_suspended() -> None:
    host = make_host("gpu1", 2)
    experiment = submit_experiment(slots=2)
    for fields in (
        {"contact": Host.Contact.SILENT},
        {"enabled": False},
        {"draining": True},
        {"admission": Host.Admission.SUSPENDED},
    ):
        Host.objects.filter(pk=host.pk).update(**fields)
        PoolChange.objects.create(pool=default_pool())
        run_pass()
        assert trial_of(experiment).task.state == TaskState.WAITING, fields
        good = {"contact": Host.Contact.REACHABLE, "enabled": True, "draining": False}
        Host.objects.filter(pk=host.pk).update(admission=Host.Admission.READY, **good)
    PoolChange.objects.create(pool=default_pool())
    run_pass()
    assert trial_of(experiment).task.state == TaskState.RUNNING


@pytest.mark.django_db
def test_a_higher_priority_stops_the_lower_and_the_slots_are_remembered_for_it() -> None:
    make_host("gpu1", 2)
    low = submit_experiment(slots=2, priority=50)
    run_pass()
    high = submit_experiment(slots=2, priority=10)
    run_pass()
    attempt = attempt_of(low)
    assert attempt.stop_kind == StopKind.PREEMPT and attempt.stop_reason == Reason.PREEMPTED
    assert attempt.stop_for_task == trial_of(high).task_id
    assert trial_of(high).task.state == TaskState.WAITING


@pytest.mark.django_db
def test_a_paused_experiment_is_not_in_the_queue_and_a_backed_off_task_waits_its_time() -> None:
    make_host("gpu1", 2)
    paused, later = submit_experiment(), submit_experiment()
    experiments.pause(paused.pk, actor="user:ada")
    Task.objects.filter(trial__experiment=later).update(not_before=timezone.now() + timedelta(seconds=60))
    run_pass()
    assert not Allocation.objects.exists()
    assert queue_order.places(default_pool()) == [later.job_id]
    assert "retrying in" in plan_of(default_pool())["waits"][trial_of(later).task_id]["sentence"]


@pytest.mark.django_db
def test_a_pass_is_made_when_something_changed_and_not_otherwise() -> None:
    make_host("gpu1", 2)
    submit_experiment()
    assert run_pass() >= 1
    assert run_pass() == 0
    submit_experiment()
    assert run_pass() >= 1


@pytest.mark.django_db
def test_a_pool_whose_pass_fails_delays_no_other() -> None:
    broken = ResourcePool.objects.create(name="broken", scheduler="unknown", planned_at=None)
    make_host("gpu1", 2)
    waits = submit_experiment(slots=1)
    for first in (broken.pk, default_pool().pk):
        ResourcePool.objects.filter(pk=first).update(
            description="read first"
        )  # a row that changes moves to the end
        mark_dirty(broken.pk), mark_dirty(default_pool().pk)
        before = default_pool().planned_at
        with pytest.raises(ExceptionGroup) as failed:
            tasks.tick()
        (fault,) = failed.value.exceptions
        assert f"In the pass of pool {broken.pk}." in fault.__notes__
        assert default_pool().planned_at != before
    assert attempt_of(waits).state == AllocationState.ASSIGNED


@pytest.mark.survive(19)
@pytest.mark.django_db(transaction=True)
def test_ticks_at_once_give_no_slot_twice_and_no_task_two_attempts() -> None:
    make_host("gpu1", 4), make_host("gpu2", 4)
    for number in range(12):
        submit_experiment(slots=1 + number % 2)

    def tick(_: int) -> int:
        try:
            return run_pass()
        finally:
            connection.close()

    with ThreadPoolExecutor(6) as threads:
        list(threads.map(tick, range(24)))
    run_pass()
    held = list(SlotHold.objects.filter(released_at=None).values_list("slot_id", flat=True))
    assert len(held) == len(set(held)) == 8
    open_ones = Allocation.objects.exclude(state=AllocationState.TERMINATED)
    assert open_ones.count() == Task.objects.filter(state=TaskState.RUNNING).count()


@pytest.mark.django_db
def test_work_that_may_not_be_stopped_waits_for_the_pools_quota_with_a_sentence() -> None:
    make_host("gpu1", 4)
    ResourcePool.objects.update(unpreemptible_slots=2)
    jobs = [submit_experiment(slots=2).job for _ in range(2)]
    Job.objects.filter(pk__in=[job.pk for job in jobs]).update(preemptible=False)
    free = submit_experiment(slots=2)
    run_pass()
    run_pass()
    states = [Task.objects.get(job=job).state for job in [*jobs, free.job]]
    assert states == [TaskState.RUNNING, TaskState.WAITING, TaskState.RUNNING]
    [wait] = plan_of(default_pool())["waits"].values()
    assert wait["code"] == "unpreemptible" and "holds 2 of at most 2 slots" in wait["sentence"]


@pytest.mark.django_db
def test_a_pool_leaves_young_runs_alone_for_its_minimum_run_time() -> None:
    make_host("gpu1", 2)
    ResourcePool.objects.update(min_runtime_seconds={"1": 3600, "90": 0})
    low = submit_experiment(slots=2, priority=60)
    run_pass()
    Allocation.objects.update(started_at=timezone.now() - timedelta(minutes=50))
    waits = trial_of(submit_experiment(slots=2, priority=10)).task_id
    run_pass()
    assert attempt_of(low).stop_kind == ""
    assert "started recently, may be stopped from" in plan_of(default_pool())["waits"][waits]["sentence"]
    Allocation.objects.update(started_at=timezone.now() - timedelta(minutes=70))
    mark_dirty(default_pool().pk)
    run_pass()
    assert attempt_of(low).stop_kind == StopKind.PREEMPT


@pytest.mark.django_db
def test_forecasts_and_what_is_unknown_are_stored_with_the_plan() -> None:
    make_host("gpu1", 2)
    submit_experiment(slots=2, max_time="1h")
    run_pass()
    waits = trial_of(submit_experiment(slots=2)).task_id
    lost = trial_of(submit_experiment(slots=3)).task_id
    run_pass()
    plan = plan_of(default_pool())
    earliest, latest = plan["forecast"][waits]
    assert timezone.now().timestamp() < earliest < latest < timezone.now().timestamp() + 7200
    assert lost not in plan["forecast"] and plan["waits"][lost]["code"] == "never_fits"


@pytest.mark.django_db
def test_of_what_is_too_far_back_for_a_forecast_only_the_order_is_stored(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(forecast, "MOST_FORECASTS", 1)
    make_host("gpu1", 2)
    submit_experiment(slots=2, max_time="1h")
    waiting = [trial_of(submit_experiment(slots=2)).task_id for _ in range(3)]
    run_pass()
    plan = plan_of(default_pool())
    assert (plan["behind"], plan["unknown"]) == (waiting[1:], {})
    shown = last_plan.of(default_pool())
    assert [shown.why_unknown(task) for task in waiting] == [
        None,
        *(f"{place} requests are ahead of it; only the first 1 get a forecast" for place in (1, 2)),
    ]


@pytest.mark.django_db
def test_a_forecast_is_not_shown_once_the_task_waits_for_something_else() -> None:
    make_host("gpu1", 2)
    submit_experiment(slots=2, max_time="1h")
    run_pass()
    waits = trial_of(submit_experiment(slots=1)).task_id
    run_pass()
    assert waits in last_plan.of(default_pool()).forecast
    document = kept_plan.read(default_pool().pk).document
    document["waits"][waits]["data"]["by"] = ["exp 999"]
    keep_plan(default_pool(), **document)
    assert waits in last_plan.of(default_pool()).forecast, "the run that it was told of still runs"
    keep_plan(default_pool(), **{**document, "running": ["exp 999"]})
    plan = last_plan.of(default_pool())
    assert waits not in plan.forecast
    assert plan.unknown[waits].startswith("what it waits for has changed")


def waits_with_a_promise() -> str:
    """Id of a task that waits for a run of known length, after a pass that promised its start."""
    make_host("gpu1", 2)
    runs = submit_experiment(slots=2, max_time="1h", name="runs")
    run_pass()
    task = trial_of(submit_experiment(slots=2)).task_id
    run_pass()
    promise = PoolPlan.objects.get().forecast["promises"][task]
    assert promise["span"] == last_plan.of(default_pool()).forecast[task]
    assert attempt_of(runs).state != AllocationState.TERMINATED
    return task


def shift_promise(task: str, seconds: float) -> None:
    """As if the promise, and the last forecast, had been made so many seconds ago."""
    kept = PoolPlan.objects.get()
    promise = kept.forecast["promises"][task]
    promise["at"] -= seconds
    promise["span"] = [at - seconds for at in promise["span"]]
    assert kept.forecast_at is not None
    kept.forecast_at -= timedelta(seconds=seconds)
    kept.save()
    PoolChange.objects.create(pool=default_pool())


@pytest.mark.django_db
def test_a_promise_that_was_missed_becomes_not_known_and_its_row_says_why() -> None:
    task = waits_with_a_promise()
    shift_promise(task, 7200)
    run_pass()
    plan = last_plan.of(default_pool())
    assert task not in plan.forecast
    assert plan.unknown[task].startswith("was expected by ")
    [row] = ForecastOutcome.objects.all()
    assert (row.task_id, row.started_at, row.edited) == (task, None, False)
    assert row.missed_at is not None and row.missed_at > row.latest > row.promised_at
    assert row.why == plan.waits[task]["sentence"]
    shift_promise(task, 60)
    run_pass()
    assert ForecastOutcome.objects.count() == 1, "it is missed once"


@pytest.mark.django_db
def test_the_start_of_a_promised_task_is_kept_with_its_promise() -> None:
    task = waits_with_a_promise()
    run = Allocation.objects.exclude(task=task).get()
    settle.member_exited(run.members.get().pk, code=0, signal=None, ended_at=100.0, first_failure=None)
    shift_promise(task, 60)
    run_pass()
    [row] = ForecastOutcome.objects.all()
    assert (row.task_id, row.missed_at, row.edited) == (task, None, False)
    assert row.started_at == Allocation.objects.get(task=task).assigned_at
    assert PoolPlan.objects.get().forecast["promises"] == {}


@pytest.mark.django_db
@pytest.mark.parametrize("edit", ["max_slots", "pause", "moved away", "elsewhere"])
def test_a_promise_before_a_user_changed_the_queue_is_marked(edit: str) -> None:
    other = ResourcePool.objects.create(name="other")
    task = waits_with_a_promise()
    edited = submit_experiment(slots=2)
    if edit == "elsewhere":
        Job.objects.filter(pk=edited.job_id).update(pool=other)
    if edit == "pause":
        experiments.pause(edited.pk, actor="user:ada")
    elif edit == "moved away":
        queue_edits.apply(
            [queue_edits.Update(str(edited.job_id), pool=other.name)], actor="user:ada", role="admin"
        )
    else:
        queue_edits.apply(
            [queue_edits.Update(str(edited.job_id), max_slots=2)], actor="user:ada", role="admin"
        )
    shift_promise(task, 7200)
    Event.objects.update(at=timezone.now() - timedelta(hours=1))
    run_pass()
    assert ForecastOutcome.objects.get().edited is (edit != "elsewhere")


def make_forecast_due() -> None:
    kept = PoolPlan.objects.get()
    assert kept.forecast_at is not None
    kept.forecast_at -= timedelta(seconds=60)
    kept.save()
    PoolChange.objects.create(pool=default_pool())


def attempt_at(task: str, at: float) -> None:
    """An attempt of the task that is over: it got its slots at this time."""
    number = Allocation.objects.filter(task=task).count() + 1
    attempt = Allocation.objects.create(
        pk=f"{task}.{number}",
        task_id=task,
        number=number,
        pool=default_pool(),
        slots=2,
        state=AllocationState.TERMINATED,
    )
    Allocation.objects.filter(pk=attempt.pk).update(assigned_at=datetime.fromtimestamp(at, UTC))


@pytest.mark.django_db
def test_each_start_is_the_first_after_its_own_promise() -> None:
    tasks = [trial_of(submit_experiment(slots=2)).task_id for _ in range(2)]
    first, second = (Promise(at, (at + 60, at + 600)) for at in (1000.0, 4600.0))
    for task, at in ((tasks[0], 1300.0), (tasks[1], 1310.0), (tasks[1], 4900.0)):
        attempt_at(task, at)
    started = forecast_outcomes.started({tasks[0]: first, tasks[1]: second})
    assert {task: at.timestamp() for task, at in started.items()} == {tasks[0]: 1300.0, tasks[1]: 4900.0}
    Allocation.objects.filter(assigned_at__gte=datetime.fromtimestamp(4900, UTC)).delete()
    assert forecast_outcomes.started({tasks[0]: first, tasks[1]: second}).keys() == {tasks[0]}


@pytest.mark.django_db
def test_a_task_that_ran_and_waits_again_has_kept_its_promise() -> None:
    task = waits_with_a_promise()
    shift_promise(task, 7200)
    promise = PoolPlan.objects.get().forecast["promises"][task]
    attempt_at(task, promise["span"][0] + 1)
    run_pass()
    [row] = ForecastOutcome.objects.all()
    assert row.missed_at is None
    assert row.started_at is not None and row.started_at.timestamp() == pytest.approx(promise["span"][0] + 1)
    futures = PoolPlan.objects.get().forecast
    assert futures["promises"][task]["at"] > promise["at"] + 7000, "of the new wait"
    start = row.started_at.timestamp() - promise["at"]
    assert futures["places"] == [pytest.approx(place(promise["guess"], start))]
    shift_promise(task, 60)
    run_pass()
    assert len(PoolPlan.objects.get().forecast["places"]) == 1, "later passes keep it, and add it once"


@pytest.mark.django_db
def test_forecasts_do_not_learn_from_a_start_that_a_user_may_have_moved() -> None:
    task, edited = waits_with_a_promise(), submit_experiment(slots=2)
    edit = queue_edits.Update(str(edited.job_id), max_slots=2)
    queue_edits.apply([edit], actor="user:ada", role="admin")
    shift_promise(task, 7200)
    Event.objects.update(at=timezone.now() - timedelta(hours=1))
    attempt_at(task, PoolPlan.objects.get().forecast["promises"][task]["span"][0] + 1)
    run_pass()
    assert ForecastOutcome.objects.get().edited
    assert PoolPlan.objects.get().forecast["places"] == []


def missed_row() -> tuple[str, ForecastOutcome]:
    task = waits_with_a_promise()
    shift_promise(task, 7200)
    run_pass()
    return task, ForecastOutcome.objects.get()


@pytest.mark.django_db
def test_the_row_of_a_miss_gets_its_start_though_its_promise_is_forgotten() -> None:
    task, row = missed_row()
    kept = PoolPlan.objects.get()
    del kept.forecast["promises"][task]
    kept.save()
    run = Allocation.objects.exclude(task=task).get()
    settle.member_exited(run.members.get().pk, code=0, signal=None, ended_at=100.0, first_failure=None)
    make_forecast_due()
    run_pass()
    row.refresh_from_db()
    assert row.started_at == Allocation.objects.get(task=task).assigned_at
    assert row.left_at is None


@pytest.mark.django_db
def test_the_row_of_a_miss_is_closed_when_its_task_leaves_the_queue() -> None:
    task, row = missed_row()
    experiments.pause(int(Task.objects.get(pk=task).job.entity_id), actor="user:ada")
    make_forecast_due()
    run_pass()
    row.refresh_from_db()
    assert row.started_at is None and row.left_at is not None
    [outcome] = forecasts.outcomes(default_pool(), timezone.now() + timedelta(days=2))
    assert outcome.error == (row.left_at - row.latest).total_seconds()


@pytest.mark.django_db
def test_what_was_submitted_often_lately_is_expected_again() -> None:
    make_host("gpu1", 2)
    for _ in range(3):
        submit_experiment(slots=1, priority=1, max_time="1h")
    run_pass()
    last = trial_of(submit_experiment(slots=1, max_time="1h"))
    pool = default_pool()
    snapshot = survey.take(pool, timezone.now())
    recent = recent_work.of(pool.pk, snapshot)
    assert sorted(one.priority for one in recent) == [1, 1, 1, 42]
    assert all(one.lasts is not None and one.slots == 1 for one in recent)
    assert last.task_id in {one.task_id for one in recent}


@pytest.mark.django_db
@pytest.mark.parametrize(
    ("news_seconds", "held"), [(2, 3 + 100 + 2), (7200, 3 + 100 + survey.NEWS_AT_MOST.total_seconds())]
)
def test_forecasts_learn_how_long_slots_were_held(
    settings: LazySettings, news_seconds: float, held: float
) -> None:
    settings.FORECAST_HISTORY_SECONDS = -1  # read anew
    trial, began = trial_of(submit_experiment(slots=2)), timezone.now() - timedelta(hours=4)
    attempt_at(trial.task_id, began.timestamp() - 3)
    ended = began + timedelta(seconds=100)
    Allocation.objects.update(
        started_at=began,
        ended_at=ended,
        settled_at=ended + timedelta(seconds=news_seconds),
        exit_reason=Reason.COMPLETED,
    )
    job = Job.objects.get()
    like = survey.past_runs().like(str(job.pk), Work(job.owner_id, job.kind, job.name, 2))
    assert like is not None and math.exp(like.mean) == pytest.approx(held)


def test_a_pool_that_was_removed_since_it_was_marked_gets_no_pass(db: None) -> None:
    pool = ResourcePool.objects.create(name="former", removed=True)
    PoolChange.objects.create(pool=pool)
    assert pool_pass.run(pool.pk) == 0


@pytest.mark.django_db
def test_an_experiment_runs_on_the_hosts_of_its_config_only_and_says_when_one_is_removed() -> None:
    make_host("gpu1", 1), make_host("gpu2", 2), make_host("gpu3", 4)
    here, there = submit_experiment(slots=2, hosts=["gpu2"]), submit_experiment(hosts=["gpu3"])
    run_pass()
    assert [str(member.host) for member in members_of(here)] == ["gpu2"]
    assert [str(member.host) for member in members_of(there)] == ["gpu3"]
    waits, gone = submit_experiment(slots=2, hosts=["gpu2"]), submit_experiment(hosts=["gpu1"])
    Host.objects.get(name="gpu1").delete()
    run_pass()
    told = plan_of(default_pool())["waits"]
    assert "only gpu2 is allowed by its config" in sentences(waits)
    assert told[trial_of(waits).task_id]["sentence"].startswith("needs 2 slots on one host: gpu2 is reserved")
    said = told[trial_of(gone).task_id]
    assert (said["code"], said["sentence"]) == (
        "hosts_gone",
        "waits for host gpu1, which is not in the pool any more",
    )
    make_host("gpu1", 1)
    PoolChange.objects.create(pool=default_pool())
    run_pass()
    assert [str(member.host) for member in members_of(gone)] == ["gpu1"]


def sentences(experiment: Experiment) -> list[str]:
    snapshot = survey.take(default_pool(), timezone.now())
    return [reason.sentence for reason in explain(snapshot, trial_of(experiment).task_id)]


@pytest.mark.django_db
def test_a_job_whose_config_names_hosts_is_not_moved_into_a_pool_without_them() -> None:
    make_host("gpu1", 4), make_host("gpu9", 4, ResourcePool.objects.create(name="big"))
    experiment = submit_experiment(hosts=["gpu1"], activate=False)
    with pytest.raises(Refusal, match="names host gpu1, which is in resource pool default, not in big"):
        queue_edits.apply(
            [queue_edits.Update(str(experiment.job_id), pool="big")], actor="user:ada", role="editor"
        )
    experiment.job.refresh_from_db()
    assert experiment.job.pool == default_pool()


@pytest.mark.django_db
def test_a_command_runs_on_the_host_of_its_config_only() -> None:
    make_host("gpu1", 1), make_host("gpu2", 1), make_host("gpu3", 1)
    command = submit.create(
        owner=make_user(), config=check({"entrypoint": "nvidia-smi", "resources": {"hosts": "gpu2"}}),
        context=contexts.empty(), workspace_number=1, idempotency_key=None, actor="user:ada",
    )  # fmt: skip
    run_pass()
    assert [str(each.host) for each in Member.objects.filter(allocation__task=command.task)] == ["gpu2"]
