"""What a pass has decided about deadlines, as it is written: never against later edits, nor from an old plan."""

from __future__ import annotations

from datetime import timedelta

import pytest
from django.utils import timezone

from dispatch.passes import deadline_look, last_plan, survey
from hosts.models import PoolPlan, ResourcePool
from hosts.pools import default_pool
from jobs import deadlines
from jobs.models import Job
from jobs.queue_order import everyone
from jobs.states import JobState
from scheduling.deadlines import Look, Move, Outcome, Verdict
from scheduling.plan import decide
from tests.rig.world import make_host, submit_experiment

pytestmark = pytest.mark.django_db


def submitted(count: int) -> list[Job]:
    """So many jobs of one slot, in this order; the last one is due in five hours."""
    make_host("gpu1", 1)
    for _ in range(count):
        submit_experiment(slots=1, max_time="2h")
    jobs = list(Job.objects.order_by("submitted_at"))
    due_in(jobs[-1], 5)
    return jobs


def due_in(job: Job, hours: float) -> None:
    job.deadline_at = (timezone.now() + timedelta(hours=hours)).replace(microsecond=0)
    job.save(update_fields=["deadline_at"])


def goes(job: Job, anchor: Job) -> bool:
    assert job.deadline_at is not None
    return deadlines.go_ahead(Move(str(job.pk), str(anchor.pk), ()), job.deadline_at.timestamp())


def order() -> list[object]:
    return [job.pk for job in everyone(default_pool())]


@pytest.mark.parametrize("edited", ["moved", "due earlier", "moved and paused"])
def test_nothing_is_passed_that_was_edited_since_the_pass_looked(edited: str) -> None:
    first, second, third, due = submitted(4)
    if edited == "due earlier":
        due_in(third, 4)
    else:
        third.moved_at = timezone.now()
        third.state = JobState.PAUSED if "paused" in edited else third.state
        third.save(update_fields=["moved_at", "state"])
    assert not goes(due, second)
    assert order() == [first.pk, second.pk, third.pk, due.pk]


def test_what_stands_elsewhere_does_not_keep_it_from_going_ahead() -> None:
    first, second, third, due = submitted(4)
    due_in(first, 4)  # before the anchor
    third.priority, third.moved_at = due.priority + 1, timezone.now()
    third.save(update_fields=["priority", "moved_at"])
    assert goes(due, second)
    assert order() == [first.pk, due.pk, second.pk, third.pk]


def test_an_old_plan_moves_nothing() -> None:
    first, _, due = submitted(3)
    due_in(due, 2.5)
    pool = default_pool()
    now = timezone.now()
    snapshot = survey.take(pool, now)
    plan = decide(snapshot)
    last_plan.store(pool.pk, snapshot, plan, 1.0, now)
    ResourcePool.objects.update(planned_at=now + timedelta(seconds=1))  # a newer pass has stored its own
    last_plan.add_forecast(pool.pk, snapshot, plan, None, now)
    assert order()[-1] == due.pk
    ResourcePool.objects.update(planned_at=now)
    last_plan.add_forecast(pool.pk, snapshot, plan, None, now)
    assert order()[:2] == [first.pk, due.pk]


def test_a_missed_promise_and_what_is_said_of_the_deadline_agree() -> None:
    _, _, due = submitted(3)
    pool = default_pool()
    now = timezone.now()
    snapshot = survey.take(pool, now)
    plan = decide(snapshot)
    last_plan.store(pool.pk, snapshot, plan, 1.0, now)
    task = due.tasks.get().pk
    over = {
        "at": snapshot.now - 7200,
        "span": [snapshot.now - 3600, snapshot.now - 60],
        "missed": "",
        "about": [],
    }
    PoolPlan.objects.update(forecast={"promises": {task: over}})
    last_plan.add_forecast(pool.pk, snapshot, plan, None, now)
    kept = PoolPlan.objects.get(pool=pool).forecast
    assert kept["unknown"][task].startswith("was expected by ")
    assert kept["deadlines"][str(due.pk)]["outcome"] == "unknown"
    assert "was expected by " in kept["deadlines"][str(due.pk)]["sentence"]


def test_of_many_that_are_late_the_first_are_told_with_one_forecast(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(deadline_look, "MOST_TOLD", 2)
    jobs = submitted(3)
    for hours, job in enumerate(jobs, 1):
        due_in(job, hours)
    late = Verdict(Outcome.LATE, "cannot meet its deadline")
    requests = survey.take(default_pool(), timezone.now()).requests
    for told in (2, 3):
        deadline_look.carry_out(Look({str(job.pk): late for job in jobs}), requests)
        assert Job.objects.filter(late_told_at__isnull=False).count() == told
    assert deadlines.not_told([str(job.pk) for job in jobs], 9) == []
