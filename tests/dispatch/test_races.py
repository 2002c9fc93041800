"""What people ask for while a pass is placing the very same work: one of them waits, and nothing is forgotten."""

import threading
from collections.abc import Callable

import pytest
from django.db import connection, transaction

from dispatch import passes
from experiments import submit
from experiments import transitions as experiments
from experiments.models import Experiment, Trial
from experiments.states import ExperimentState
from hosts import registry
from jobs import queue_edits, transitions
from jobs.models import Allocation, Job, SlotHold, Task
from jobs.states import AllocationState, Reason, StopKind
from tests.experiments.test_search import RANDOM, submitted
from tests.rig.world import attempt_of, make_host, submit_experiment, trial_of

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
        except (queue_edits.Refused, registry.Refused, submit.Refused) as refusal:
            answers.append(str(refusal))

    return in_thread(run), answers


def wait_until_one_waits_for_a_lock(thread: threading.Thread) -> None:
    for _ in range(200):
        with connection.cursor() as cursor:
            cursor.execute("SELECT count(*) FROM pg_locks WHERE NOT granted")
            if cursor.fetchone()[0]:
                return
        thread.join(0.05)
    raise AssertionError("nobody waits for a lock")


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
        passes.run(experiment.job.pool_id)  # placed, not committed yet
        thread = in_thread(lambda: wish(experiment.pk, actor="user:ada"))
        wait_until_one_waits_for_a_lock(thread)
    thread.join(10)
    attempt = attempt_of(experiment)
    assert attempt.stop_kind == kind and attempt.state == AllocationState.TERMINATING
    assert trial_of(experiment).task.state == "RUNNING"


def test_a_pass_that_meets_a_kill_places_nothing() -> None:
    make_host("gpu0", 1)
    experiment = submit_experiment()
    with transaction.atomic():
        experiments.kill(experiment.pk, actor="user:ada")  # not committed yet
        thread = in_thread(lambda: passes.run(experiment.job.pool_id))
        wait_until_one_waits_for_a_lock(thread)
    thread.join(10)
    assert not Allocation.objects.exists() and not SlotHold.objects.exists()


@pytest.mark.parametrize("_", range(3))  # the ids, and with them the order of the locks, are drawn by chance
def test_a_pass_and_a_pause_of_the_same_trials_do_not_lock_each_other_out(_: int) -> None:
    """The pass stops one trial of an experiment and starts another of it, whose rows a pause locks, too."""
    make_host("gpu0", 1)
    experiment = submitted(RANDOM % (2, 2))
    passes.run(experiment.job.pool_id)
    held = Allocation.objects.get()
    waiting = experiment.trials.exclude(task=held.task).get()
    with transaction.atomic():
        transitions.lock_tasks([waiting.task_id])  # as a pass does first
        thread = in_thread(lambda: experiments.pause(experiment.pk, actor="user:ada"))
        wait_until_one_waits_for_a_lock(thread)
        transitions.request_stop(held.pk, StopKind.PREEMPT, reason=Reason.PREEMPTED, actor="scheduler")
    thread.join(10)
    experiment.refresh_from_db()
    assert experiment.state == ExperimentState.PAUSED


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
    thread.join(10)
    assert answers == [f"job {job.pk} not found"]
