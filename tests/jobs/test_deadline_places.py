"""The place that its deadline gave a job, and the one it had before, through edits of people and their undo."""

from __future__ import annotations

from datetime import timedelta

import pytest
from django.utils import timezone

from accounts.models import User
from accounts.refusals import Refusal
from events.models import Event
from hosts.models import ResourcePool
from hosts.pools import default_pool
from jobs import deadlines, queue_edits, queue_history, transitions
from jobs.models import Job, Task
from jobs.queue_edits import Update
from jobs.queue_order import everyone
from jobs.states import JobState, Reason
from scheduling.deadlines import Move

pytestmark = pytest.mark.django_db


def queue(count: int) -> list[Job]:
    """Jobs j0, j1, … of one user, in this order."""
    ada = User.objects.create(username="ada", role=User.Role.EDITOR)
    return [submitted(ada, f"j{number}") for number in range(count)]


def submitted(owner: User, name: str) -> Job:
    job = transitions.create_job(
        kind=Job.Kind.EXPERIMENT,
        name=name,
        owner=owner,
        pool=default_pool(),
        priority=42,
        weight=1.0,
        max_slots=None,
        preemptible=True,
        active=True,
        actor="test",
    )
    asked = {"kind": Task.Kind.TRIAL, "name": "trial", "slots": 1, "single_host": False, "actor": "test"}
    transitions.create_task(job=job, task_id=f"t.{job.pk}", **asked)
    return job


def names(pool: ResourcePool | None = None) -> list[str]:
    return [job.name for job in everyone(pool or default_pool())]


def due(job: Job, hours: float = 5) -> None:
    at = (timezone.now() + timedelta(hours=hours)).replace(microsecond=0)
    Job.objects.filter(pk=job.pk).update(deadline_at=at)


def goes_ahead(job: Job, anchor: Job, hours: float = 5) -> bool:
    """As the scheduler lets it, for a deadline so far from now unless it has one."""
    job.refresh_from_db()
    if job.deadline_at is None:
        due(job, hours)
        job.refresh_from_db()
    assert job.deadline_at is not None
    return deadlines.go_ahead(Move(str(job.pk), str(anchor.pk), ("x",)), job.deadline_at.timestamp())


def apply(job: Job, **changes: object) -> None:
    queue_edits.apply([Update(str(job.pk), **changes)], actor="user:ada", role="admin")


def undo() -> list[str]:
    return [change.words for change in queue_edits.undo(User.objects.get(username="ada"))]


def spent(one: Job, other: Job) -> None:
    """Leave no float between two jobs."""
    step = 2**-22  # between floats of this size
    Job.objects.filter(pk=other.pk).update(position=Job.objects.get(pk=one.pk).position + step)


def test_a_job_that_is_active_again_has_the_deadline_and_the_place_that_it_is_given() -> None:
    first, second, last = queue(3)
    assert goes_ahead(last, first)
    Job.objects.filter(pk=last.pk).update(
        state=JobState.ENDED, ended_at=timezone.now(), late_told_at=timezone.now()
    )
    assert transitions.revive_job(last.pk, pool=default_pool(), actor="test", deadline_at=None)
    last.refresh_from_db()
    assert (last.deadline_at, last.late_told_at, last.usual_position) == (None, None, None)
    submitted(first.owner, "new")
    apply(last, deadline="9h")
    apply(last, deadline="none")
    assert names() == ["j0", "j1", "j2", "new"]
    assert goes_ahead(last, second), "no user has moved it where it is now"


def test_places_before_deadlines_keep_their_order_when_positions_are_spread() -> None:
    jobs = queue(5)
    assert goes_ahead(jobs[4], jobs[2])
    spent(jobs[0], jobs[1])
    assert goes_ahead(jobs[3], jobs[1], 4)  # before that of j4, which it passes too
    assert names() == ["j0", "j3", "j1", "j4", "j2"]
    submitted(jobs[0].owner, "new")
    for job in (jobs[3], jobs[4]):
        apply(job, deadline="none")
    assert names() == ["j0", "j1", "j2", "j3", "j4", "new"]


def test_many_jobs_that_go_ahead_of_one_all_come_back() -> None:
    jobs = queue(30)
    for number in range(2, 30):
        assert goes_ahead(jobs[number], jobs[1], 5 + number)
    assert names() == ["j0", *(f"j{number}" for number in range(2, 30)), "j1"]
    for job in jobs[2:]:
        apply(job, deadline="none")
    assert names() == [job.name for job in jobs]


def test_an_edit_can_be_undone_after_the_scheduler_has_spread_positions() -> None:
    jobs = queue(4)
    apply(jobs[2], ahead_of=str(jobs[1].pk))
    spent(jobs[0], jobs[2])
    # what the edit noted is the place that the job has
    edit = queue_edits.last_undoable(jobs[0].owner)
    assert edit is not None
    edit.after[0]["position"] = Job.objects.get(pk=jobs[2].pk).position
    edit.save()
    Job.objects.filter(pk=jobs[2].pk).update(moved_at=None)
    edit.after[0]["moved_at"] = None
    edit.save()
    assert goes_ahead(jobs[3], jobs[2])
    assert names() == ["j0", "j3", "j2", "j1"]
    assert undo() == ["it has its former position"]
    assert names() == ["j0", "j3", "j1", "j2"]


@pytest.mark.parametrize("to", ["priority", "pool"])
def test_among_others_it_stands_where_it_would_without_its_deadline(to: str) -> None:
    there = ResourcePool.objects.create(name="big")
    jobs = queue(5)
    elsewhere: dict[str, object] = {"priority": 10} if to == "priority" else {"pool": there}
    Job.objects.filter(pk__in=[jobs[2].pk, jobs[3].pk]).update(**elsewhere, moved_at=timezone.now())
    assert goes_ahead(jobs[4], jobs[0])
    apply(jobs[4], **({"priority": 10} if to == "priority" else {"pool": "big"}))
    pool = default_pool() if to == "priority" else there
    assert [name for name in names(pool) if name in ("j2", "j3", "j4")] == ["j2", "j3", "j4"]
    jobs[4].refresh_from_db()
    assert jobs[4].usual_position is None
    event = Event.objects.filter(kind=Event.Kind.JOB, subject=str(jobs[4].pk)).latest("id")
    assert queue_history.in_words(event).endswith(", put back from where its deadline had moved it")
    assert undo()
    assert names()[0] == "j4" or to == "priority"
    jobs[4].refresh_from_db()
    assert jobs[4].usual_position is not None and jobs[4].position < jobs[0].position


def test_a_move_that_is_taken_back_is_no_move_of_a_user() -> None:
    first, second, last = queue(3)
    assert goes_ahead(last, second)
    apply(last, behind_of=str(second.pk))
    assert not goes_ahead(last, second)
    undo()
    assert names() == ["j0", "j2", "j1"]
    assert goes_ahead(last, first)


@pytest.mark.parametrize(
    ("change", "place"),
    [({"max_slots": 4}, 0), ({"deadline": "5h"}, 2), ({"priority": 42}, 2)],
    ids=["max_slots", "deadline", "priority"],
)
def test_what_its_deadline_moved_since_can_be_undone(change: dict[str, object], place: int) -> None:
    first, _, last = queue(3)
    if "priority" in change:
        Job.objects.filter(pk=last.pk).update(priority=43)
    if "deadline" not in change:
        due(last)
    apply(last, **change)
    assert goes_ahead(last, first)
    assert names() == ["j2", "j0", "j1"]
    undo()
    last.refresh_from_db()
    assert (last.usual_position is None) == (place == 2)
    Job.objects.filter(pk=last.pk).update(priority=42)
    assert names().index("j2") == place


def test_an_edit_of_another_user_still_stands_in_the_way_of_an_undo() -> None:
    first, _, last = queue(3)
    due(last)
    apply(last, max_slots=4)
    assert goes_ahead(last, first)
    queue_edits.apply([Update(str(last.pk), max_slots=5)], actor="user:bob", role="admin")
    with pytest.raises(Refusal, match="has been changed by bob since then"):
        undo()
    assert Reason.DEADLINE_AHEAD in Event.objects.filter(subject=str(last.pk)).values_list(
        "reason", flat=True
    )
