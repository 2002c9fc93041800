"""What is handed to Slurm: no more than may be, taken back when others are ahead, begun as it was claimed."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from hosts.models import Host, ResourcePool
from jobs import feeding
from jobs.fed_jobs import FedJob
from jobs.models import Allocation, Slot, Task
from jobs.states import TaskState
from tests.rig.world import make_host, submit_experiment, trial_of

pytestmark = pytest.mark.django_db


def kept(pool: ResourcePool, *tasks: str, most: int = 2) -> dict[str, bool]:
    """Task -> whether it is being taken back, of all that are fed."""
    nodes = lambda ids: dict.fromkeys(ids, 1)  # noqa: E731
    feeding.keep(pool, tasks, most, nodes)
    rows = feeding.open_jobs(pool.pk).order_by("pk")
    return {row.task_id: row.back_at is not None for row in rows}


def world(count: int) -> tuple[ResourcePool, list[str], Sequence[int]]:
    host = make_host("n1", 2)
    tasks = [trial_of(submit_experiment()).task_id for _ in range(count)]
    return host.pool, tasks, list(Slot.objects.filter(host=host).values_list("pk", flat=True))


def test_places_in_slurm_are_free_when_what_was_taken_back_is_gone() -> None:
    pool, (first, second, third), _ = world(3)
    assert kept(pool, first, second) == {first: False, second: False}
    assert kept(pool, third, first) == {first: False, second: True}, "it may still be there"
    feeding.ended(FedJob.objects.get(task_id=second))
    assert kept(pool, third, first) == {first: False, third: False}
    assert FedJob.objects.get(task_id=third).attempt == f"{third}.1"


def test_an_attempt_begins_as_it_was_claimed_or_not_at_all() -> None:
    pool, (first, second), slots = world(2)
    kept(pool, first, second)
    claimed, other = FedJob.objects.get(task_id=first), FedJob.objects.get(task_id=second)
    place = [(Slot.objects.get(pk=slots[0]).host_id, slots[:1])]
    FedJob.objects.filter(pk=other.pk).update(attempt=f"{second}.7")
    other.refresh_from_db()
    assert feeding.begin(other, place) is None and not Allocation.objects.exists()
    Host.objects.update(draining=True, drain_cause="slurm")  # as it was read before Slurm gave the node
    begun = feeding.begin(claimed, place)
    assert begun and begun.id == claimed.attempt
    assert feeding.begin(claimed, place) is None, "once"
    assert list(feeding.of_allocations(pool.pk)) == [begun.id]
    FedJob.objects.filter(pk=other.pk).update(attempt=f"{second}.1")
    other.refresh_from_db()
    with pytest.raises(feeding.NotYet):  # the slot is held still; the task may start
        feeding.begin(other, place)
    Task.objects.filter(pk=second).update(state=TaskState.ENDED)
    assert feeding.begin(other, place) is None
    Task.objects.filter(pk=second).update(state=TaskState.WAITING)
    feeding.take_back(other, "others are ahead of it now")
    free = [(place[0][0], slots[1:])]
    assert feeding.begin(other, free) is None, "it is leaving Slurm"


def test_what_slurm_refuses_is_in_nobodys_way() -> None:
    pool, (first, second, third), _ = world(3)
    kept(pool, first, second)
    for row in feeding.open_jobs(pool.pk):
        feeding.turned_down(row, "Invalid feature specification.", 15.0)
    assert feeding.refused_tasks(pool.pk) == {first, second}
    assert kept(pool, first, second, third) == {first: False, second: False, third: False}
    row = FedJob.objects.get(task_id=first)
    assert feeding.claim_submission(row, "") and feeding.submitted(row, "5")
    assert feeding.refused_tasks(pool.pk) == {second}


def test_a_task_that_was_moved_between_pools_of_a_cluster_is_no_stray_of_the_first() -> None:
    pool, (task,), _ = world(1)
    kept(pool, task)
    feeding.ended(FedJob.objects.get(pool=pool))
    other = ResourcePool.objects.create(name="other")
    kept(other, task)
    moved = FedJob.objects.get(pool=other)
    assert feeding.strays(pool.pk, {"77": (moved.attempt, "ml")}, "ml") == [], (
        "it may be the one whose answer is awaited"
    )
    feeding.submitted(moved, "77")
    assert feeding.strays(pool.pk, dict.fromkeys(("77", "76"), (moved.attempt, "ml")), "ml") == ["76"]


def test_a_job_that_came_late_is_a_stray() -> None:
    pool, (first, second), _ = world(2)
    kept(pool, first, second)
    FedJob.objects.filter(task_id=first).update(job_id="7")
    doubted, known, foreign = f"{second}.1", f"{first}.1", "12.other.1"
    ids = {"7": known, "8": known, "9": doubted, "10": foreign}
    assert feeding.strays(pool.pk, {id_: (attempt, "ml") for id_, attempt in ids.items()}, "ml") == ["8"]
    FedJob.objects.filter(task_id=first).update(unix_user="ada")
    users = {"8": "ml", "11": "ada", "12": "bob"}
    assert feeding.strays(pool.pk, {id_: (known, user) for id_, user in users.items()}, "ml") == ["11"]
