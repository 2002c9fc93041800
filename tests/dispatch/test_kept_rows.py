"""What a process keeps of a pool's rows between two passes is what the database has, whatever happens in between."""

import logging
import random
from collections.abc import Iterator
from typing import Any

import psycopg
import pytest
from django.conf import LazySettings
from django.db import connection, transaction
from django.utils import timezone

from commands.models import Command
from dispatch.passes import kept_rows, pool_pass
from experiments.models import Trial
from hosts.models import Host, ResourcePool, Slot
from hosts.pools import default_pool, mark_dirty
from jobs.models import Allocation, Dependency, Job, Member, SlotHold, Task
from jobs.states import AllocationState, JobState, TaskState
from tests.rig.many import make_commands
from tests.rig.world import make_host, make_user, submit_experiment, survey_that_keeps


class Changes:
    """Random changes of rows, most of them not as the product makes them; none of them touches the job `slow`."""

    def __init__(self, pool: ResourcePool, other: ResourcePool, seed: int) -> None:
        self.pool, self.other, self.random = pool, other, random.Random(seed)

    def some(self, rows: Any) -> Any:
        """One or two of the rows."""
        ids = list(rows.values_list("pk", flat=True))
        return rows.filter(pk__in=self.random.sample(ids, min(len(ids), self.random.randint(1, 2))))

    def make_one(self) -> None:
        choose, hosts = self.random.choice, Host.objects.all()
        tasks, jobs = Task.objects.exclude(pk="slow"), Job.objects.exclude(name="slow")
        choose(
            [
                lambda: make_commands(self.pool, make_user(), 2),
                lambda: submit_experiment(slots=choose([1, 2, 4])),
                lambda: (mark_dirty(self.pool.pk), pool_pass.one(self.pool.pk)),
                lambda: self.some(tasks).update(state=choose([TaskState.WAITING, TaskState.ENDED])),
                lambda: self.some(tasks).update(slots=choose([1, 2]), avoid_hosts=choose([[], ["gpu1"]])),
                lambda: self.some(tasks).update(run_count=choose([0, 1]), blocked_by=""),
                lambda: self.some(jobs).update(state=choose([JobState.PAUSED, JobState.ACTIVE])),
                lambda: self.some(jobs).update(priority=choose([1, 50]), name=choose("ab")),
                lambda: self.some(jobs).update(pool=choose([self.pool, self.other])),
                self.delete_one,
                lambda: self.some(hosts).update(
                    enabled=choose([True, False]), failed_starts_era=choose([0, 1])
                ),
                self.admit_or_lose,
                lambda: self.some(Slot.objects).update(outside=choose([{}, {"user": "eve"}])),
                lambda: self.some(SlotHold.objects.filter(released_at=None)).delete(),
                lambda: make_commands(self.pool, make_user(), 1, slots=0),
                lambda: self.some(tasks).update(
                    not_before=choose([None, timezone.now()]), max_time_seconds=choose([None, 9])
                ),
                lambda: self.some(Trial.objects).update(progress=choose([None, 0.01, 0.5])),
                lambda: self.some(Allocation.objects).update(
                    stop_kind=choose(["", "PREEMPT"]), asked_preempt_at=choose([None, timezone.now()])
                ),
                lambda: self.some(Allocation.objects).update(state=AllocationState.TERMINATED),
                lambda: self.some(Member.objects).update(cleaning_since=choose([None, timezone.now()])),
                self.depend,
                lambda: self.some(Dependency.objects).update(met_at=timezone.now()),
            ]
        )()

    def admit_or_lose(self) -> None:
        admission = self.random.choice([Host.Admission.READY, Host.Admission.LOST])
        self.some(Host.objects).update(admission=admission)

    def depend(self) -> None:
        """Neither the job that waits nor its task is written. A task may wait alone, as an element of an array does."""
        for job in self.some(Job.objects.exclude(name="slow")):
            task = self.random.choice([None, job.tasks.first()])
            Dependency.objects.create(
                job=job, on=job, task=task, label="exp 1", condition=Dependency.Condition.END
            )

    def delete_one(self) -> None:
        """A command that never ran, with its task and its job."""
        for command in self.some(Command.objects.filter(task__allocations=None).order_by("pk"))[:1]:
            command.delete()
            Task.objects.filter(pk=command.task_id).delete()
            Job.objects.filter(pk=command.job_id).delete()


@pytest.fixture
def changes(transactional_db: None) -> Changes:
    kept_rows._kept.clear(), kept_rows._distrusted.clear()
    make_host("gpu1", 2), make_host("gpu2", 2)
    pool, other = default_pool(), ResourcePool.objects.create(name="other")
    make_commands(pool, make_user(), 6)
    return Changes(pool, other, 0)


@pytest.fixture
def another_session(changes: Changes) -> Iterator[psycopg.Connection[Any]]:
    """A connection whose locks keep nobody waiting: a transaction of its own may write the task `slow`."""
    job = Job.objects.create(
        kind=Job.Kind.COMMAND, name="slow", owner=make_user(), pool=changes.pool, position=1.0, entity_id="x"
    )
    Task.objects.create(id="slow", job=job, kind=Task.Kind.COMMAND, name="slow", slots=99)
    parameters = connection.get_connection_params() | {"cursor_factory": psycopg.Cursor}
    with psycopg.connect(**parameters) as session:
        yield session
        session.rollback()


def test_what_is_kept_makes_the_same_snapshot_as_all_rows(
    changes: Changes, another_session: psycopg.Connection[Any], settings: LazySettings
) -> None:
    """Also after rollbacks, a freeze, and what another transaction wrote in a savepoint before rows were kept."""
    settings.SURVEY_CHECK_SECONDS = 3600.0  # a slow machine must not read all rows meanwhile
    survey_that_keeps(changes.pool)
    for number in range(60):
        kept, undone = kept_rows._kept[changes.pool.pk], changes.random.random() < 0.3
        if number % 10 == 0:
            another_session.execute("SAVEPOINT inner_one")
            another_session.execute("UPDATE jobs_task SET slots = slots + 1 WHERE id = 'slow'")
            another_session.execute("RELEASE SAVEPOINT inner_one")
        with transaction.atomic():
            for _ in range(changes.random.randint(1, 3)):
                with transaction.atomic():
                    changes.make_one()
            survey_that_keeps(changes.pool)
            transaction.set_rollback(undone)
        survey_that_keeps(changes.pool)
        if number % 10 == 5:
            another_session.commit() if number % 20 == 5 else another_session.rollback()
            survey_that_keeps(changes.pool)
        if number == 30:
            with connection.cursor() as cursor:
                cursor.execute("VACUUM (FREEZE) jobs_task, jobs_job, hosts_slot")
        assert kept_rows._kept[changes.pool.pk] is kept, "only what had changed was read"
    assert not kept_rows._distrusted


def test_what_depends_on_the_time_is_not_taken_for_a_difference(
    changes: Changes, settings: LazySettings
) -> None:
    """All is read and compared in each survey, while trials that report their progress run."""
    submit_experiment(slots=1)
    mark_dirty(changes.pool.pk)
    pool_pass.one(changes.pool.pk)
    Trial.objects.update(progress=0.5)
    settings.SURVEY_CHECK_SECONDS = 0.0
    for _ in range(10):
        changes.make_one()
        survey_that_keeps(changes.pool)
    assert not kept_rows._distrusted


def test_rows_of_a_table_that_was_written_anew_are_not_believed(changes: Changes) -> None:
    """It keeps the numbers of transactions, and moves rows to places that others had."""
    with transaction.atomic():
        make_commands(changes.pool, make_user(), 50)
    survey_that_keeps(changes.pool)
    kept = kept_rows._kept[changes.pool.pk]
    with transaction.atomic():
        Task.objects.filter(pk__in=list(Task.objects.values_list("pk", flat=True)[:20])).update(
            state=TaskState.ENDED
        )
    with connection.cursor() as cursor:
        cursor.execute("VACUUM FULL jobs_task")
    survey_that_keeps(changes.pool)
    assert kept_rows._kept[changes.pool.pk] is not kept and not kept_rows._distrusted


def test_what_was_kept_wrongly_is_told_and_nothing_is_kept_any_more(
    changes: Changes, settings: LazySettings, caplog: pytest.LogCaptureFixture
) -> None:
    survey_that_keeps(changes.pool)
    kept = kept_rows._kept[changes.pool.pk]
    next(iter(kept.tables[0].all()))[14] = 99  # a priority
    settings.SURVEY_CHECK_SECONDS = 0.0
    with caplog.at_level(logging.ERROR, "dispatch.passes.kept_rows"):
        survey_that_keeps(changes.pool)
    assert "A kept survey of pool" in caplog.text and "wrong about 1 of " in caplog.text
    assert changes.pool.pk not in kept_rows._kept
    survey_that_keeps(changes.pool)
    assert changes.pool.pk not in kept_rows._kept


def test_requests_that_were_kept_are_compared_too(
    changes: Changes, settings: LazySettings, caplog: pytest.LogCaptureFixture
) -> None:
    survey_that_keeps(changes.pool)
    request = next(iter(kept_rows._kept[changes.pool.pk].requests.values()))
    request.priority = 99  # type: ignore[misc]
    settings.SURVEY_CHECK_SECONDS = 0.0
    with caplog.at_level(logging.ERROR, "dispatch.passes.kept_rows"):
        survey_that_keeps(changes.pool)
    assert "wrong about 1 of " in caplog.text


def test_rows_of_another_server_are_not_believed(changes: Changes) -> None:
    survey_that_keeps(changes.pool)
    kept = kept_rows._kept[changes.pool.pk]
    kept.server = "another start"
    next(iter(kept.tables[0].all()))[14] = 99
    survey_that_keeps(changes.pool)
    assert kept_rows._kept[changes.pool.pk] is not kept and not kept_rows._distrusted
