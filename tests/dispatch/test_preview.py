"""What a preview says is what the pass then does, and the preview itself changes nothing."""

from __future__ import annotations

from datetime import timedelta

import pytest
from django.utils import timezone

from accounts.refusals import Refusal
from dispatch.passes import pool_pass, preview
from dispatch.runs import settle
from events.models import Event
from experiments import submit
from experiments.config import parse
from experiments.models import Experiment, Trial
from hosts.models import PoolChange, ResourcePool
from hosts.pools import default_pool
from jobs import queue_edits, transitions
from jobs.models import Allocation, Job, QueueEdit
from jobs.queue_edits import Update
from jobs.states import AllocationState, Reason, StopKind, TaskState
from submissions import contexts
from tests.rig.world import (
    attempt_of,
    make_host,
    make_project,
    make_user,
    submit_experiment,
    trial_of,
)

pytestmark = pytest.mark.django_db

SEARCH = """
name: {name}
entrypoint: python3 train.py
hyperparameters: {{}}
searcher:
  {{name: random, max_trials: {trials}, max_concurrent_trials: {trials}, metric: loss, max_length: {{batches: 9}}}}
"""


def run_pass() -> None:
    pool_pass.run(default_pool().pk)


def preview_of(*updates: Update, user: str = "ada", role: str = "editor") -> preview.Preview:
    return preview.of(list(updates), actor=f"user:{user}", role=role, now=timezone.now())


def of(experiment: Experiment, **fields: object) -> Update:
    return Update(str(experiment.job_id), **fields)  # type: ignore[arg-type]


def leave(experiment: Experiment) -> None:
    """Its run ends after it was asked to."""
    attempt = attempt_of(experiment)
    transitions.preempt_acknowledged(attempt.pk)
    for member in attempt.members.all():
        settle.member_exited(
            member.pk, code=0, signal=None, ended_at=None, first_failure=None, boot_id="boot"
        )


def stopped() -> set[str]:
    """The jobs whose runs the last passes asked to leave."""
    rows = Allocation.objects.filter(stop_kind=StopKind.PREEMPT)
    return {str(job_id) for job_id in rows.values_list("task__job_id", flat=True)}


def test_a_move_ahead_of_what_runs_shows_who_is_stopped_and_the_new_order() -> None:
    make_host("gpu1", 1)
    one = submit_experiment(name="one", owner=make_user("bob"))
    run_pass()
    two = submit_experiment(name="two")
    run_pass()
    found = preview_of(of(two, ahead_of=str(one.job_id)))
    assert [str(change) for change in found.changes] == [
        f"Job {str(two.job_id)[:8]}: it goes ahead of job {str(one.job_id)[:8]}."
    ]
    assert [(place.name, place.place, place.was) for place in found.order] == [("two", 0, 1), ("one", 1, 0)]
    (stop,) = found.stops
    assert (stop.name, stop.username, stop.slots, stop.mine) == ("one", "bob", 1, False)
    assert stop.never_saved and stop.last_saved_at is None
    assert found.stops_others
    (start,) = found.starts
    assert not start.now and start.reason and "being freed by exp" in start.reason
    queue_edits.apply([of(two, ahead_of=str(one.job_id))], actor="user:ada", role="editor")
    run_pass()
    assert stopped() == {str(one.job_id)}


def test_a_preview_leaves_nothing_behind() -> None:
    make_host("gpu1", 1)
    one, two = submit_experiment(name="one"), submit_experiment(name="two")
    run_pass()
    ResourcePool.objects.create(name="big")
    PoolChange.objects.all().delete()
    before = list(Job.objects.order_by("pk").values()), Event.objects.count()
    preview_of(of(two, to_top=True, priority=3), of(one, pool="big"))
    assert (list(Job.objects.order_by("pk").values()), Event.objects.count()) == before
    assert not QueueEdit.objects.exists() and not PoolChange.objects.exists()
    assert attempt_of(one).stop_kind == StopKind.NONE


def test_a_refused_edit_is_refused_by_its_preview_with_the_same_sentence() -> None:
    one = submit_experiment()
    with pytest.raises(Refusal, match="priority must be between 1 and 99"):
        preview_of(of(one, priority=0))
    with pytest.raises(Refusal, match="is a viewer"):
        preview_of(of(one, priority=1), role="viewer")


def test_what_a_pass_stops_anyway_is_not_blamed_on_the_edit() -> None:
    make_host("gpu1", 1)
    low = submit_experiment(name="low", priority=50)
    run_pass()
    submit_experiment(name="high", priority=10)  # no pass has seen it yet
    rest = submit_experiment(name="rest", priority=50)
    assert preview_of(of(rest, priority=49)).stops == []
    assert attempt_of(low).stop_kind == StopKind.NONE


def test_a_job_that_fits_at_once_starts_now_in_the_other_pool() -> None:
    make_host("gpu1", 1)
    one, two = submit_experiment(name="one"), submit_experiment(name="two")
    run_pass()
    make_host("gpu2", 1, ResourcePool.objects.create(name="big"))
    found = preview_of(of(two, pool="big"))
    assert [(start.job_id, start.now) for start in found.starts] == [(str(two.job_id), True)]
    assert [(place.name, place.place, place.was) for place in found.order] == [("two", 0, None)]
    leaving = preview_of(of(one, pool="big"))
    assert [(stop.name, stop.mine) for stop in leaving.stops] == [("one", True)]
    assert not leaving.stops_others


def submit_search(name: str, trials: int) -> Experiment:
    """An experiment of so many trials of one slot, all at once."""
    text = SEARCH.format(name=name, trials=trials)
    return submit.create(
        owner=make_user(),
        config=parse(text),
        original=text,
        context=contexts.empty(),
        project=make_project(),
        parent=None,
        activate=True,
        idempotency_key=None,
        actor="user:ada",
    )


def test_in_a_fair_share_pool_a_weight_moves_slots_at_the_next_pass() -> None:
    ResourcePool.objects.filter(pk=default_pool().pk).update(scheduler="fair_share")
    make_host("gpu1", 4)
    one, two = submit_search("one", 4), submit_search("two", 4)
    run_pass()
    held = Allocation.objects.values_list("task__job_id", flat=True)
    assert sorted(held) == sorted([one.job_id] * 2 + [two.job_id] * 2)
    found = preview_of(of(one, weight=3.0))
    assert found.order == [] and not found.stops_others
    assert [(stop.job_id, stop.slots, stop.runs) for stop in found.stops] == [(str(two.job_id), 1, 1)]
    assert [str(change) for change in found.changes] == [f"Job {str(one.job_id)[:8]}: it gets weight 3."]
    queue_edits.apply([of(one, weight=3.0)], actor="user:ada", role="editor")
    run_pass()
    assert stopped() == {str(two.job_id)}


def test_a_lowered_limit_shows_whose_runs_it_stops_what_they_lose_and_that_an_undo_lifts_it() -> None:
    make_host("gpu1", 4)
    search = submit_search("search", 4)
    run_pass()
    trials = list(search.trials.order_by("pk"))
    trials[3].task.allocations.update(assigned_at=timezone.now() + timedelta(seconds=1))  # the newest
    Trial.objects.filter(pk=trials[3].pk).update(progress=0.94, steps_completed=940)
    found = preview_of(of(search, max_slots=3))
    assert str(found.changes[0]).endswith(
        ": it may hold 3 slots; it holds 4, and 1 run (1 slot) is asked to save and give back its slots."
    )
    [stop] = found.stops
    assert (stop.name, stop.slots, stop.runs, stop.never_saved) == ("search", 1, 1, True)
    assert (stop.progress, stop.steps_again) == (0.94, 940)
    assert stop.resumes and not stop.resumes.now and stop.resumes.reason
    assert "max_slots" in stop.resumes.reason
    Allocation.objects.update(asked_preempt_at=timezone.now())
    assert preview_of(of(search, max_slots=3)).stops[0].steps_again == 0, "it saves when it is asked to"
    queue_edits.apply([of(search, max_slots=3)], actor="user:ada", role="editor")
    assert Job.objects.get(pk=search.job_id).max_slots == 3
    [undone] = queue_edits.undo(make_user())
    assert undone.words == "it has max_slots none again"
    assert Job.objects.get(pk=search.job_id).max_slots is None


def test_who_is_stopped_resumes_when_who_it_is_stopped_for_has_ended() -> None:
    make_host("gpu1", 1)
    submit_experiment(name="one", max_time="10m")
    run_pass()
    two = submit_experiment(name="two", max_time="10m")
    [stop] = preview_of(of(two, to_top=True)).stops
    assert stop.resumes and stop.resumes.forecast
    earliest, latest = stop.resumes.forecast
    assert 0 < earliest - timezone.now().timestamp() < latest - timezone.now().timestamp() < 1000


def test_a_running_experiment_that_is_moved_to_another_pool_saves_and_waits_there() -> None:
    """features.md 2.9, check 7."""
    make_host("gpu1", 1)
    one = submit_experiment(name="one")
    run_pass()
    big = ResourcePool.objects.create(name="big")
    make_host("gpu2", 1, big)
    queue_edits.apply([of(one, pool="big")], actor="user:ada", role="editor")
    assert attempt_of(one).stop_reason == Reason.POOL_CHANGED
    leave(one)
    assert trial_of(one).task.state == TaskState.WAITING
    pool_pass.run(big.pk)
    assert attempt_of(one).number == 2 and attempt_of(one).pool == big
    queue_edits.undo(make_user())
    assert attempt_of(one).stop_reason == Reason.POOL_CHANGED
    leave(one)
    run_pass()
    assert attempt_of(one).number == 3 and attempt_of(one).pool == default_pool()


def test_work_that_already_leaves_is_not_shown_again() -> None:
    make_host("gpu1", 1)
    one = submit_experiment(name="one")
    run_pass()
    two = submit_experiment(name="two")
    run_pass()
    queue_edits.apply([of(two, ahead_of=str(one.job_id))], actor="user:ada", role="editor")
    run_pass()
    assert transitions.preempt_acknowledged(attempt_of(one).pk)
    assert preview_of(of(two, priority=1)).stops == []


def test_after_an_undo_what_started_by_the_edit_is_stopped_again() -> None:
    make_host("gpu1", 1)
    one = submit_experiment(name="one")
    run_pass()
    two = submit_experiment(name="two")
    queue_edits.apply([of(two, to_top=True)], actor="user:ada", role="editor")
    run_pass()
    leave(one)
    run_pass()
    assert attempt_of(two).state == AllocationState.ASSIGNED
    queue_edits.undo(make_user())
    run_pass()
    assert attempt_of(two).stop_for_task == trial_of(one).task_id
