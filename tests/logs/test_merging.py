"""Cold chunks become large ones: same lines, same numbers, whoever reads or writes meanwhile."""

import threading
from datetime import timedelta

import pytest
from django.db import connection
from django.utils import timezone

from jobs.models import Member, Task
from jobs.states import TaskState
from logs import merging, read, store
from logs.chunks import BYTES_PER_CHUNK, LINES_PER_CHUNK
from logs.filters import Filters
from logs.levels import Level
from logs.lines import Block, LogLine
from logs.models import Chunk, TaskLog
from logs.written import written
from tests.rig.rows import make_gang

pytestmark = pytest.mark.django_db


def write(members: list[Member], batches: int, start: int = 0) -> None:
    """Slow ranks: each batch is a line or three of one of them."""
    for number in range(start, start + batches):
        member = members[number % len(members)]
        levels = [(0, "ERROR")] if number % 7 == 0 else []
        cut = [0] if number % 5 == 0 else []
        text = "\n".join(f"step {number}.{i}" for i in range(number % 3 + 1))
        block = Block(
            1000 + number / 8, number % 8, "stderr" if number % 4 == 0 else "stdout", levels, cut, text
        )
        store.append(member.allocation.task_id, member, member.host.name, [block])


def make_cold(task_id: str) -> None:
    Chunk.objects.filter(task_id=task_id).update(stored_at=timezone.now() - timedelta(hours=1))


def whole(task_id: str, filters: Filters | None = None) -> list[LogLine]:
    return read.tail(task_id, filters or Filters(), 10**6)


def end(task_id: str) -> None:
    Task.objects.filter(pk=task_id).update(state=TaskState.ENDED)


SOME_FILTERS = [
    Filters(),
    Filters(ranks=frozenset({3, 4})),
    Filters(levels=frozenset({Level.ERROR})),
    Filters(streams=frozenset("e")),
    Filters(text="step 11", after_time=1002.0),
]


def test_a_log_that_has_ended_is_merged_and_reads_as_before() -> None:
    members = make_gang(2)
    task_id = members[0].allocation.task_id
    write(members, 300)
    hosts = [Filters(hosts=frozenset({member.host.name})) for member in members]
    before = [whole(task_id, each) for each in SOME_FILTERS + hosts]
    bytes_before = b"".join(written(task_id, Filters()))
    end(task_id)
    assert merging.merge_cold(60) == 0  # nothing is cold yet
    make_cold(task_id)
    assert merging.merge_cold(60) == 299
    assert [whole(task_id, each) for each in SOME_FILTERS + hosts] == before
    assert b"".join(written(task_id, Filters())) == bytes_before
    chunk = Chunk.objects.get(task_id=task_id)
    assert chunk.members == sorted(member.pk for member in members)
    assert chunk.ranks == list(range(8)) and len(chunk.hosts) == 2
    assert merging.merge_cold(60) == 0
    assert TaskLog.objects.get(pk=task_id).merged_line == read.last_number(task_id)


def test_a_log_that_goes_on_is_merged_when_it_is_worth_it() -> None:
    members = make_gang(2)
    task_id = members[0].allocation.task_id
    write(members, merging.CHUNKS_WORTH_MERGING - 1)
    make_cold(task_id)
    assert merging.merge_cold(60) == 0
    write(members, 10, start=merging.CHUNKS_WORTH_MERGING - 1)
    make_cold(task_id)
    write(members, 5, start=1000)
    before = whole(task_id)
    assert merging.merge_cold(60) == merging.CHUNKS_WORTH_MERGING + 8
    assert whole(task_id) == before and Chunk.objects.filter(task_id=task_id).count() == 6
    write(members, 300, start=2000)
    make_cold(task_id)
    before = whole(task_id)
    merging.merge_cold(60)
    assert Chunk.objects.filter(task_id=task_id).count() == 1 and whole(task_id) == before


def test_merged_chunks_stay_within_their_limits(member: Member) -> None:
    task_id = member.allocation.task_id
    for number in range(40):
        text = "\n".join(f"{number} {'x' * 100}" for _ in range(number * 10 + 1))
        store.append(task_id, member, "h", [Block(float(number), 0, "stdout", [], [], text)])
    before = whole(task_id)
    end(task_id)
    make_cold(task_id)
    assert merging.merge_cold(60) > 20
    assert whole(task_id) == before
    for chunk in Chunk.objects.filter(task_id=task_id):
        assert chunk.text_bytes <= BYTES_PER_CHUNK
        assert chunk.last_line - chunk.first_line < LINES_PER_CHUNK


@pytest.mark.django_db(transaction=True)
def test_reads_under_way_see_each_line_once_while_others_write_and_merge() -> None:
    members = make_gang(2)
    task_id = members[0].allocation.task_id
    write(members, 300)
    make_cold(task_id)
    writing, failures = threading.Event(), []

    def merge() -> None:
        try:
            while writing.is_set():
                Chunk.objects.filter(task_id=task_id).update(stored_at=timezone.now() - timedelta(hours=1))
                merging.merge(task_id, timezone.now(), ended=True)
                TaskLog.objects.filter(pk=task_id).update(merged_line=0)
        except Exception as error:
            failures.append(error)
        finally:
            connection.close()

    def append() -> None:
        try:
            write(members, 200, start=300)
        finally:
            writing.clear()
            connection.close()

    writing.set()
    threads = [threading.Thread(target=target) for target in (merge, merge, append)]
    for thread in threads:
        thread.start()
    reads = 0
    while writing.is_set():
        _read_both_ways(task_id)
        reads += 1
    for thread in threads:
        thread.join(60)
    assert not failures and reads
    assert [line.number for line in whole(task_id)] == list(range(1, read.last_number(task_id) + 1))
    assert read.last_number(task_id) == sum(number % 3 + 1 for number in range(500))


def _read_both_ways(task_id: str) -> None:
    ahead: list[int] = []
    after = 0
    while True:
        page = read.forward(task_id, after, limit=37)
        ahead += [line.number for line in page.lines]
        after = page.upto
        if page.done:
            break
    assert ahead == list(range(1, len(ahead) + 1))
    back: list[int] = []
    before: int | None = None
    while True:
        page = read.backward(task_id, before, limit=37)
        back = [line.number for line in page.lines] + back
        before = page.upto
        if page.done:
            break
    assert back == list(range(1, len(back) + 1))
