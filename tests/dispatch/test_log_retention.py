"""Logs are removed when they have been kept long enough: in steps, for good, with a word about it."""

from __future__ import annotations

import threading
import time
from datetime import timedelta
from typing import Any

import pytest
from django.db import connection, transaction
from django.utils import timezone

from dispatch import tasks
from dispatch.keeping import log_retention
from jobs.models import Member, Task
from jobs.states import TaskState
from logs import merging, read, retention, store
from logs.lines import NewLine, blocks_of
from logs.models import Chunk, RankSeen
from tests.rig.rows import make_gang

pytestmark = pytest.mark.django_db


def write(member: Member, *texts: str) -> None:
    lines = [NewLine(1000.0, 0, "stdout", None, text) for text in texts]
    store.append(member.allocation.task_id, member, member.host.name, blocks_of(lines))


def ended(days_ago: float = 0.0, chunks: int = 1) -> str:
    """The id of a task that ended so long ago, with so many chunks of two lines."""
    member = make_gang(token=str(timezone.now()))[0]
    for number in range(chunks):
        write(member, f"first of {number}", f"second of {number}")
    at = timezone.now() - timedelta(days=days_ago)
    Task.objects.filter(pk=member.allocation.task_id).update(state=TaskState.ENDED, ended_at=at)
    return member.allocation.task_id


def texts(task_id: str) -> list[str]:
    return [line.text for line in read.forward(task_id).lines]


def due(**options: Any) -> list[str]:
    return [each.task_id for each in log_retention.due(timezone.now(), **options)]


def test_logs_are_kept_for_ever_unless_somebody_says_otherwise(settings: Any) -> None:
    task = ended(days_ago=10_000)
    assert due() == [] and log_retention.kept(task).remaining_days(timezone.now()) == -1
    settings.LOG_RETENTION_DAYS = 30
    assert due() == [task] and log_retention.kept(task).policy == "server"
    retention.keep(task, -1, actor="user:ada")
    assert due() == [] and log_retention.kept(task).policy == "task"


def test_days_count_from_the_end_of_the_task() -> None:
    task = ended(days_ago=29.9)
    assert due(default_days=30) == [] and due(default_days=29) == [task]
    retention.keep(task, 30, actor="user:ada")
    assert log_retention.kept(task).remaining_days(timezone.now()) == 1
    running = make_gang(token="running")[0]
    write(running, "still here")
    retention.keep(task, None, actor="user:ada")
    assert due(default_days=0) == [task], "a task that goes on is never due"


def test_a_removed_log_says_so_and_numbers_go_on(settings: Any) -> None:
    settings.LOG_RETENTION_DAYS = 30
    task, kept = ended(days_ago=31, chunks=3), ended(days_ago=29)
    removed = log_retention.remove_due(60)
    assert (removed.logs, removed.held.lines, removed.more) == (1, 6, False)
    assert texts(task) == ["The log was removed after 30 days (the server's setting)."]
    assert read.forward(task).lines[0].number == 7
    assert not RankSeen.objects.filter(task_id=task).exists()
    assert len(texts(kept)) == 2
    assert due() == [], "only the line that says so is left"
    assert log_retention.remove_due(60).logs == 0


def test_an_interrupted_removal_goes_on_and_says_so_once(
    settings: Any,
) -> None:
    settings.LOG_RETENTION_DAYS = 1
    task = ended(days_ago=2, chunks=5)
    retention.begin(task, "it was to be removed")
    assert retention.step(task, chunks=2).lines == 4
    assert texts(task)[-1] == "it was to be removed", "it is said before anything is missing"
    assert log_retention.remove_due(60).held.lines == 7
    assert texts(task) == ["The log was removed after 1 day (the server's setting)."]


def test_what_arrives_after_the_removal_is_removed_in_its_turn(settings: Any) -> None:
    settings.LOG_RETENTION_DAYS = 0
    task = ended(days_ago=1)
    log_retention.remove_due(60)
    member = Member.objects.get(allocation__task_id=task)
    write(member, "from a host that was silent")
    assert due() == [task]
    log_retention.remove_due(60)
    assert texts(task) == ["The log was removed when its job ended (the server's setting)."]


def test_a_task_that_goes_on_again_keeps_its_log(settings: Any) -> None:
    settings.LOG_RETENTION_DAYS = 0
    task = ended(days_ago=1)
    Task.objects.filter(pk=task).update(state=TaskState.WAITING)
    assert retention.begin(task, "no") is False
    assert log_retention.remove_due(60).logs == 0
    assert Chunk.objects.filter(task_id=task).count() == 1


def test_what_logs_hold_is_summed() -> None:
    before = retention.held()
    task = ended(chunks=2)
    held = retention.held_by([task, "no-such-task"])
    assert list(held) == [task]
    assert held[task].lines == 4 and held[task].text_bytes == len("first of 0\nsecond of 0\n") * 2
    assert retention.held() == before.plus(held[task])


def test_a_round_stops_in_time_and_the_next_goes_on(settings: Any) -> None:
    settings.LOG_RETENTION_DAYS = 0
    first, second = ended(days_ago=3), ended(days_ago=2)
    assert log_retention.remove_due(0).more is True
    settings.LOG_CLEANUP_ROUND_SECONDS = 60
    tasks.clean_logs()
    for task in (first, second):
        assert texts(task) == ["The log was removed when its job ended (the server's setting)."]


@pytest.mark.django_db(transaction=True)
def test_what_is_merged_while_a_removal_waits_for_it_is_removed_too() -> None:
    task = ended(chunks=merging.FEWEST_MERGED)
    assert retention.begin(task, "It goes.")
    removed: list[retention.Held] = []

    def remove() -> None:
        removed.append(retention.step(task))
        connection.close()

    remover = threading.Thread(target=remove)
    with transaction.atomic():
        chunks = Chunk.objects.filter(task_id=task).order_by("first_line")[: merging.FEWEST_MERGED]
        small = [merging._Small(chunk.first_line, chunk.last_line, chunk.text_bytes) for chunk in chunks]
        assert merging._merge(task, small) == merging.FEWEST_MERGED - 1
        remover.start()
        until = time.monotonic() + 60
        while not _somebody_waits_for_a_lock() and time.monotonic() < until:
            remover.join(0.01)
    remover.join(60)
    assert removed[0].lines == 2 * merging.FEWEST_MERGED
    assert texts(task) == ["It goes."]


def _somebody_waits_for_a_lock() -> bool:
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_stat_clear_snapshot()")  # a transaction sees the activity of its first look
        cursor.execute(
            "SELECT EXISTS (SELECT FROM pg_stat_activity "
            "WHERE wait_event_type = 'Lock' AND datname = current_database())"
        )
        return bool(cursor.fetchone()[0])
