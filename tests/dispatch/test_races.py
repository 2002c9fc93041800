"""What people ask for while a pass is placing the very same work: one of them waits, and nothing is forgotten."""

import json
import threading
from collections.abc import Callable

import pytest
from django.db import connection, transaction
from django.utils import timezone

from accounts.refusals import Refusal
from dispatch.passes import pool_pass
from dispatch.runs import intake, reconcile, settle
from experiments import transitions as experiments
from experiments.models import Experiment, Trial
from experiments.states import ExperimentState
from hosts import pool_edits, registry
from hosts.models import ResourcePool
from hosts.pools import default_pool
from jobs import queue_edits, transitions
from jobs.models import Allocation, Job, SlotHold, Task
from jobs.states import AllocationState, JobState, Reason, StopKind
from logs import store as log_store
from logs.models import TaskLog
from metrics.models import Chunk
from tests.experiments.test_search import RANDOM, submitted
from tests.rig.world import attempt_of, make_host, members_of, submit_experiment, trial_of

pytestmark = pytest.mark.django_db(transaction=True)


def in_thread(work: Callable[[], object]) -> threading.Thread:
    def run() -> None:
        try:
            work()
        finally:
            connection.close()

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    return thread


def answer_of(work: Callable[[], object]) -> tuple[threading.Thread, list[object]]:
    """The thread that does it, and the list that will hold what it gave or the refusal that it met."""
    answers: list[object] = []

    def run() -> None:
        try:
            answers.append(work())
        except Refusal as refusal:
            answers.append(str(refusal))

    return in_thread(run), answers


def wait_until_one_waits_for_a_lock(thread: threading.Thread) -> None:
    for _ in range(1200):
        with connection.cursor() as cursor:
            cursor.execute("SELECT count(*) FROM pg_locks WHERE NOT granted")
            if cursor.fetchone()[0]:
                return
        thread.join(0.05)
    raise AssertionError("nobody waits for a lock")


@pytest.mark.survive(26)
@pytest.mark.parametrize(
    ("wish", "kind"),
    [
        (experiments.pause, StopKind.PREEMPT),
        (experiments.cancel, StopKind.PREEMPT),
        (experiments.kill, StopKind.STOP),
    ],
)
def test_a_wish_that_meets_a_pass_stops_the_attempt_that_the_pass_makes(
    wish: Callable[..., Experiment], kind: StopKind
) -> None:
    make_host("gpu0", 1)
    experiment = submit_experiment()
    with transaction.atomic():
        pool_pass.run(experiment.job.pool_id)  # placed, not committed yet
        thread = in_thread(lambda: wish(experiment.pk, actor="user:ada"))
        wait_until_one_waits_for_a_lock(thread)
    thread.join(60)
    attempt = attempt_of(experiment)
    assert attempt.stop_kind == kind and attempt.state == AllocationState.TERMINATING
    assert trial_of(experiment).task.state == "RUNNING"


@pytest.mark.survive(26)
def test_a_pass_that_meets_a_kill_places_nothing() -> None:
    make_host("gpu0", 1)
    experiment = submit_experiment()
    with transaction.atomic():
        experiments.kill(experiment.pk, actor="user:ada")  # not committed yet
        thread = in_thread(lambda: pool_pass.run(experiment.job.pool_id))
        wait_until_one_waits_for_a_lock(thread)
    thread.join(60)
    assert not Allocation.objects.exists() and not SlotHold.objects.exists()


@pytest.mark.parametrize("_", range(3))  # the ids, and with them the order of the locks, are drawn by chance
def test_a_pass_and_a_pause_of_the_same_trials_do_not_lock_each_other_out(_: int) -> None:
    """The pass stops one trial of an experiment and starts another of it, whose rows a pause locks, too."""
    make_host("gpu0", 1)
    experiment = submitted(RANDOM % (2, 2))
    pool_pass.run(experiment.job.pool_id)
    held = Allocation.objects.get()
    waiting = experiment.trials.exclude(task=held.task).get()
    with transaction.atomic():
        transitions.lock_tasks([waiting.task_id])  # as a pass does first
        thread = in_thread(lambda: experiments.pause(experiment.pk, actor="user:ada"))
        wait_until_one_waits_for_a_lock(thread)
        transitions.request_stop(held.pk, StopKind.PREEMPT, reason=Reason.PREEMPTED, actor="scheduler")
    thread.join(60)
    experiment.refresh_from_db()
    assert experiment.state == ExperimentState.PAUSED


@pytest.mark.survive(26)
def test_a_move_to_another_pool_that_meets_a_pass_stops_the_attempt_that_the_pass_makes() -> None:
    make_host("gpu0", 1)
    pool_edits.create("other", {}, actor="user:ada")
    experiment = submit_experiment()
    update = queue_edits.Update(str(experiment.job.pk), pool="other")
    with transaction.atomic():
        pool_pass.run(experiment.job.pool_id)  # placed, not committed yet
        thread, answers = answer_of(lambda: queue_edits.apply([update], actor="user:ada", role="admin"))
        wait_until_one_waits_for_a_lock(thread)
    thread.join(60)
    attempt = attempt_of(experiment)
    assert answers and attempt.stop_reason == Reason.POOL_CHANGED


def test_an_edit_that_meets_the_deletion_of_its_job_is_refused() -> None:
    make_host("gpu0", 1)
    job = submit_experiment().job
    update = queue_edits.Update(str(job.pk), priority=3)
    with transaction.atomic():
        Job.objects.filter(pk=job.pk).update(entity_id="")
        thread, answers = answer_of(
            lambda: queue_edits.apply([update], actor="user:ada", role="editor")
        )  # it has found the job and waits for it
        wait_until_one_waits_for_a_lock(thread)
        Trial.objects.all().delete()
        Experiment.objects.all().delete()
        Task.objects.all().delete()
        Job.objects.all().delete()
    thread.join(60)
    assert answers == [f"job {job.pk} not found"]


GONE = "resource pool a100 has been removed; choose another one."


def a100(history: bool) -> ResourcePool:
    """A pool with nothing in it; with history it is hidden when it is removed, otherwise its row goes."""
    pool = pool_edits.create("a100", {}, actor="user:ada")
    if history:
        Job.objects.filter(pk=submit_experiment().job_id).update(pool=pool, state=JobState.ENDED)
    return pool


def submit_into_a100() -> Experiment:
    return submit_experiment(max_time="60, resource_pool: a100")


@pytest.mark.parametrize("history", [True, False])
@pytest.mark.parametrize("what", ["submit", "change pool", "move host", "add host"])
def test_nothing_is_put_into_a_pool_that_is_being_removed(what: str, history: bool) -> None:
    host, pool, job = make_host("gpu0", 1), a100(history), submit_experiment().job
    update = queue_edits.Update(str(job.pk), pool="a100")
    new = registry.NewHost("gpu1", address="10.0.0.9")
    works: dict[str, Callable[[], object]] = {
        "submit": submit_into_a100,
        "change pool": lambda: queue_edits.apply([update], actor="user:ada", role="editor"),
        "move host": lambda: registry.change_pool(host.pk, pool, actor="user:ada"),
        "add host": lambda: registry.add(new, pool, actor="user:ada"),
    }
    jobs = Job.objects.count()
    with transaction.atomic():
        pool_edits.remove("a100", actor="user:ada")  # not committed yet
        thread, answers = answer_of(works[what])
        wait_until_one_waits_for_a_lock(thread)
    thread.join(60)
    assert answers == [GONE]
    host.refresh_from_db()
    job.refresh_from_db()
    assert host.pool == job.pool == default_pool() and Job.objects.count() == jobs
    assert not registry.present().filter(name="gpu1").exists()


def test_a_removal_that_meets_a_submission_is_refused() -> None:
    a100(history=True)
    with transaction.atomic():
        submit_into_a100()  # not committed yet
        thread, answers = answer_of(lambda: pool_edits.remove("a100", actor="user:ada"))
        wait_until_one_waits_for_a_lock(thread)
    thread.join(60)
    assert "1 unfinished job is in it" in str(answers[0])


@pytest.mark.survive(26)
def test_submissions_wait_neither_for_each_other_nor_for_a_pass() -> None:
    pool = a100(history=True)
    with transaction.atomic():
        submit_into_a100()  # not committed yet
        ResourcePool.objects.filter(pk=pool.pk).update(planned_at=timezone.now())  # as a pass does
        thread, answers = answer_of(submit_into_a100)
        thread.join(60)
        assert isinstance(answers[0], Experiment)
    assert Job.objects.filter(pool=pool, state=JobState.ACTIVE).count() == 2


def metrics_batch(step: int) -> bytes:
    data = {
        "type": "metrics",
        "group": "training",
        "steps_completed": step,
        "metrics": {"loss": 0.5},
        "t": 1.0,
    }
    return json.dumps({"k": "core", "f": "core.rank0.jsonl", "e": 1, "d": data}).encode() + b"\n"


def reports_that(count: bool) -> int:
    """How many reports of any trial count, or were put aside by a restart."""
    return sum(Chunk.objects.filter(archived=not count).values_list("reports", flat=True))


@pytest.mark.parametrize("report_comes_first", [True, False])
def test_a_report_that_meets_the_end_of_its_attempt_is_stored_before_or_refused(
    report_comes_first: bool,
) -> None:
    make_host("gpu0", 1)
    experiment = submit_experiment()
    pool_id = experiment.job.pool_id
    pool_pass.run(pool_id)
    (member,) = members_of(experiment)
    first, report = metrics_batch(10), metrics_batch(20)
    intake.store(member.pk, 0, first)

    def ends() -> None:
        settle.member_exited(member.pk, code=1, signal=None, ended_at=None, first_failure=None)
        pool_pass.run(pool_id)  # the next attempt begins before anybody else sees the end of this one

    def reports() -> object:
        try:
            return intake.store(member.pk, len(first), report).offset
        except intake.Over:
            return "over"

    with transaction.atomic():
        answer = None
        if report_comes_first:
            answer = reports()
        else:
            ends()
        thread, answers = answer_of(ends if report_comes_first else reports)
        wait_until_one_waits_for_a_lock(thread)
    thread.join(60)
    assert attempt_of(experiment).number == 2
    # the new attempt has no checkpoint to go on from, so nothing of the first one counts any more
    assert (answer, answers) == ((len(first + report), [None]) if report_comes_first else (None, ["over"]))
    assert (reports_that(count=True), reports_that(count=False)) == (0, 2 if report_comes_first else 1)


@pytest.mark.parametrize("have_rows", [True, False])
def test_a_merge_of_many_logs_that_waits_for_one_holds_no_other(have_rows: bool) -> None:
    make_host("gpu0", 2)
    made = [submit_experiment(), submit_experiment()]
    pool_pass.run(made[0].job.pool_id)
    free, held = sorted(trial_of(experiment).task_id for experiment in made)
    if have_rows:
        TaskLog.objects.bulk_create([TaskLog(task_id=free), TaskLog(task_id=held)])
    with transaction.atomic():
        assert log_store.merge_events(
            held
        )  # as an end does, which may wait for what an end with the other log has
        thread = in_thread(lambda: reconcile.merge_logs([free, held, trial_of(made[0]).task_id]))
        wait_until_one_waits_for_a_lock(thread)
        log_store.merge_events(free)
    thread.join(60)
    assert not thread.is_alive() and log_store.unmerged([free, held]) == []
