"""The queue that a process keeps: read again after every change, and only then."""

import random
from collections.abc import Callable, Iterator
from typing import Any

import psycopg
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


def _reads(pool: ResourcePool) -> list[str]:
    """The statements over jobs that were made."""
    with CaptureQueriesContext(connection) as queries:
        standing.of(pool)
    return [query["sql"] for query in queries if "holding" in query["sql"]]


def _read_again(pool: ResourcePool) -> bool:
    return bool(_reads(pool))


def _names(read: str) -> set[str]:
    """The jobs that such a statement reads."""
    with connection.cursor() as cursor:
        cursor.execute(read)
        return {value for row in cursor.fetchall() for value in row if str(value).startswith("job-")}


@pytest.fixture
def older(transactional_db: None) -> Iterator[psycopg.Connection[Any]]:
    """Another connection, whose transaction has its number already."""
    parameters = connection.get_connection_params() | {"cursor_factory": psycopg.Cursor}
    with psycopg.connect(**parameters) as session:
        session.execute("SELECT pg_current_xact_id()")
        yield session
        session.rollback()


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


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("scheduler", ["priority", "fair_share"])
def test_what_is_read_again_of_it_makes_the_same_queue_as_reading_all_of_it(scheduler: str) -> None:
    dice = random.Random(scheduler)
    pool, other = (ResourcePool.objects.create(name=name, scheduler=scheduler) for name in ("kept", "other"))
    mira = User.objects.create_user("mira")
    made = [_job(pool, mira, f"job-{number}") for number in range(60)]

    def attempt(job: Job) -> None:
        number = Allocation.objects.filter(task__job=job).count() + 1
        task = f"{job.name}.t"
        Allocation.objects.create(
            id=f"{task}.{number}", task_id=task, number=number, pool=pool, state="RUNNING", slots=1
        )

    def change(job: Job) -> None:
        jobs, tasks = Job.objects.filter(pk=job.pk), Task.objects.filter(job=job)
        match dice.randrange(7):
            case 0:
                jobs.update(priority=dice.randrange(1, 99))
            case 1:
                jobs.update(position=dice.random() * 60)
            case 2:
                jobs.update(state=dice.choice(["ACTIVE", "PAUSED"]))
            case 3:
                tasks.update(slots=dice.randrange(1, 9))
            case 4:
                tasks.update(state=dice.choice(["WAITING", "ENDED"]))
            case 5 if not Allocation.objects.filter(task__job=job).exclude(state="TERMINATED").exists():
                attempt(job)
            case 5:
                Allocation.objects.filter(task__job=job).update(state="TERMINATED")
            case 6:
                jobs.update(pool=dice.choice([pool, other]))

    for _ in range(60):
        for job in dice.sample(made, dice.randrange(1, 4)):
            change(job)
        kept = standing.of(pool)
        with transaction.atomic():  # who has written reads all of it
            Job.objects.filter(pk=made[0].pk).update(name=made[0].name)
            assert standing.of(pool) == kept
            transaction.set_rollback(True)


@pytest.mark.django_db(transaction=True)
def test_of_a_long_queue_only_what_has_changed_is_read_again() -> None:
    pool = ResourcePool.objects.create(name="kept")
    mira = User.objects.create_user("mira")
    made = [_job(pool, mira, f"job-{number}") for number in range(100)]
    standing.of(pool)
    Job.objects.filter(pk=made[50].pk).update(priority=1)
    [read] = _reads(pool)
    assert standing.of(pool).names[0] == "job-50"
    names = _names(read)
    assert "job-50" in names
    assert len(names) < 10


@pytest.mark.django_db(transaction=True)
def test_what_an_older_transaction_commits_after_a_younger_one_is_read(
    older: psycopg.Connection[Any],
) -> None:
    """Also where it has overwritten a row of the younger one, whose writer then is an older one than before."""
    pool = ResourcePool.objects.create(name="kept")
    made = _job(pool, User.objects.create_user("mira"), "first")
    standing.of(pool)
    older.execute("UPDATE jobs_job SET name = 'older' WHERE id = %s", [made.pk])
    Task.objects.update(slots=2)
    queue = standing.of(pool)
    assert (queue.names, queue.needed) == (("first",), (2,))
    older.execute("UPDATE jobs_task SET slots = slots + 1 WHERE job_id = %s", [made.pk])
    assert not _read_again(pool)
    older.commit()
    queue = standing.of(pool)
    assert (queue.names, queue.needed) == (("older",), (3,))
    assert not _read_again(pool)


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize(("end", "name"), [("RELEASE", "second"), ("ROLLBACK TO", "first")])
def test_what_was_written_in_a_savepoint_is_read_once_all_of_it_is_committed(
    older: psycopg.Connection[Any], end: str, name: str
) -> None:
    pool = ResourcePool.objects.create(name="kept")
    made = _job(pool, User.objects.create_user("mira"), "first")
    standing.of(pool)
    older.execute("SAVEPOINT inner_one")
    older.execute("UPDATE jobs_job SET name = 'second' WHERE id = %s", [made.pk])
    Task.objects.update(slots=2)
    assert standing.of(pool).names == ("first",)
    older.execute(f"{end} SAVEPOINT inner_one")
    Task.objects.update(slots=3)
    assert standing.of(pool).names == ("first",)
    older.commit()
    queue = standing.of(pool)
    assert (queue.names, queue.needed) == ((name,), (3,))


@pytest.mark.django_db(transaction=True)
def test_a_transaction_that_is_kept_open_does_not_have_everything_read_each_time(
    older: psycopg.Connection[Any],
) -> None:
    pool = ResourcePool.objects.create(name="kept")
    mira = User.objects.create_user("mira")
    made = [
        Job(name=name, owner=mira, pool=pool, kind="EXPERIMENT", entity_id=name, position=number)
        for number, name in enumerate(f"job-{number}" for number in range(2000))
    ]
    Job.objects.bulk_create(made)
    Task.objects.bulk_create(
        [Task(id=f"{job.name}.t", job=job, kind="TRIAL", name=job.name, slots=1) for job in made]
    )
    standing.of(pool)
    Job.objects.update(priority=60)
    assert _read_again(pool)
    for number in (3, 1999):
        User.objects.update(display_name=f"Mira {number}")
        assert not _read_again(pool), "what was written is not of the queue"
        Job.objects.filter(pk=made[number].pk).update(priority=1)
        [read] = _reads(pool)
        assert f"job-{number}" in _names(read)
        assert len(_names(read)) < 50
    assert standing.of(pool).names[:2] == ("job-3", "job-1999")
    older.commit()
    assert not _read_again(pool)
