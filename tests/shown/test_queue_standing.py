"""The queue that a process keeps: read again after every change, and only then."""

from collections.abc import Callable

import pytest
from django.db import connection, transaction
from django.test.utils import CaptureQueriesContext

from accounts.models import User
from hosts.models import ResourcePool
from jobs.models import Allocation, Job, Task
from shown.queue import standing


def _job(pool: ResourcePool, owner: User, name: str) -> Job:
    made = Job.objects.create(
        name=name,
        owner=owner,
        pool=pool,
        kind="EXPERIMENT",
        entity_id=name,
        position=float(Job.objects.count()),
    )
    Task.objects.create(id=f"{name}.t", job=made, kind="TRIAL", name=name, slots=1)
    return made


def _read_again(pool: ResourcePool) -> bool:
    """Whether the statement over all jobs was made."""
    with CaptureQueriesContext(
        connection,
    ) as queries:
        standing.of(pool)
    return any("holding" in query["sql"] for query in queries)


@pytest.mark.django_db(transaction=True)
def test_a_queue_is_read_again_after_each_change_of_what_it_shows_and_only_then() -> None:
    pool = ResourcePool.objects.create(name="kept")
    mira = User.objects.create_user("mira")
    first = _job(pool, mira, "first")

    def start() -> object:
        return Allocation.objects.create(
            id="first.t.1", task_id="first.t", number=1, pool=pool, state="RUNNING", slots=1
        )

    changes: list[tuple[Callable[[], object], list[tuple[str, str]]]] = [
        (lambda: _job(pool, mira, "second"), [("first", "queued"), ("second", "queued")]),
        (start, [("first", "scheduled"), ("second", "queued")]),
        (
            lambda: Job.objects.filter(pk=first.pk).update(priority=60),
            [("second", "queued"), ("first", "scheduled")],
        ),
        (lambda: Allocation.objects.update(state="TERMINATED"), [("second", "queued"), ("first", "queued")]),
        (lambda: Task.objects.filter(pk="second.t").update(state="PAUSED"), [("first", "queued")]),
        (lambda: Job.objects.filter(name="second").delete(), [("first", "queued")]),
    ]
    assert standing.of(pool).names == ("first",)
    for change, expected in changes:
        assert not _read_again(pool)
        change()
        assert _read_again(pool)
        queue = standing.of(pool)
        assert [*zip(queue.names, queue.states, strict=True)] == expected


@pytest.mark.django_db(transaction=True)
def test_who_writes_in_the_same_transaction_sees_each_of_his_writes() -> None:
    pool = ResourcePool.objects.create(name="kept")
    made = _job(pool, User.objects.create_user("mira"), "first")
    with transaction.atomic():
        for name in ("once", "twice"):
            Job.objects.filter(pk=made.pk).update(name=name)
            assert standing.of(pool).names == (name,)
        transaction.set_rollback(True)
    assert standing.of(pool).names == ("first",)


@pytest.mark.django_db(transaction=True)
def test_an_empty_queue_is_one_without_columns_of_anything() -> None:
    queue = standing.of(ResourcePool.objects.create(name="kept"))
    assert (queue.ids, queue.alike, queue.places) == ((), {}, {})
