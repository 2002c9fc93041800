"""The writer of logs, on PostgreSQL."""

import threading
from datetime import timedelta

import pytest
from django.db import connection, transaction
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from events.models import Event
from events.record import record
from jobs.models import Member
from jobs.states import AllocationState, Reason
from logs import store, streams
from logs.chunks import LINES_PER_CHUNK, unpack
from logs.contents import Contents
from logs.filters import Clock, Filters
from logs.lines import Block, LogLine, NewLine, blocks_of, raw, shown
from logs.models import Chunk, RankSeen, Stream, TaskLog
from tests.rig.rows import make_gang
from trainmaster import dialect_words

pytestmark = pytest.mark.django_db


def stored_lines(task_id: str) -> list[LogLine]:
    chunks = [Contents(unpack(row.data), row.first_line) for row in Chunk.objects.filter(task_id=task_id)]
    return [
        line for each in chunks for line in each.lines(each.indices(Filters(), 0, LINES_PER_CHUNK, Clock()))
    ]


def new_lines(*texts: str, rank: int | None = 0, start: float = 1000.0) -> list[Block]:
    return blocks_of(NewLine(start + i, rank, "stdout", None, text) for i, text in enumerate(texts))


def test_lines_get_consecutive_numbers_and_come_back_as_they_were(member: Member) -> None:
    task_id = member.allocation.task_id
    poison = [
        "plain",
        "nul \x00 inside",
        "bytes \udcff\udc80",
        "emoji 🚆",
        'quote " \\ \t',
        "\x1b[31mred\x1b[0m",
        "",
    ]
    assert store.append(task_id, member, "gpu1", new_lines(*poison)) == (1, len(poison))
    second = [
        NewLine(5.5, None, "stderr", "ERROR", "boom"),
        NewLine(6.5, 3, "stdout", "NONSENSE", "odd level"),
    ]
    assert store.append(task_id, member, "gpu1", blocks_of(second)) == (len(poison) + 1, len(poison) + 2)
    lines = stored_lines(task_id)
    assert [line.number for line in lines] == list(range(1, len(poison) + 3))
    assert [line.text for line in lines[:-2]] == poison
    assert lines[-2] == LogLine(8, 5.5, None, "e", "ERROR", "boom", "gpu1", member.pk)
    assert lines[-1].level is None and lines[-1].rank == 3
    assert raw(poison[2]) == b"bytes \xff\x80"
    assert shown(poison[1]) == "nul \ufffd inside" and shown(poison[2]) == "bytes \ufffd\ufffd"


def test_ranks_are_counted_with_their_last_line(member: Member) -> None:
    task_id = member.allocation.task_id
    store.append(task_id, member, "gpu1", new_lines("a", "b", rank=2, start=10))
    store.append(
        task_id, member, "gpu1", new_lines("c", rank=2, start=5) + new_lines("d", rank=None, start=7)
    )
    seen = {
        row.rank: (row.host, row.lines, row.last_time) for row in RankSeen.objects.filter(task_id=task_id)
    }
    assert seen == {2: ("gpu1", 3, 11.0), -1: ("gpu1", 1, 7.0)}


def test_an_undone_transaction_leaves_no_line_and_no_gap(member: Member) -> None:
    task_id = member.allocation.task_id
    with pytest.raises(RuntimeError), transaction.atomic():
        store.append(task_id, member, "gpu1", new_lines("lost"))
        raise RuntimeError("undone")
    assert store.append(task_id, member, "gpu1", new_lines("kept")) == (1, 1)
    assert [line.text for line in stored_lines(task_id)] == ["kept"]


def test_events_become_server_lines_before_the_lines_that_follow_them(member: Member) -> None:
    allocation = member.allocation
    record(
        Event.Kind.ALLOCATION, allocation.pk, to_state=AllocationState.ASSIGNED, reason=Reason.SCHEDULED,
        detail={"hosts": ["gpu1", "gpu2"], "slots": [4, 1]}, task_id=allocation.task_id,
    )  # fmt: skip
    store.append(allocation.task_id, member, "gpu1", new_lines("hello"))
    record(
        Event.Kind.ALLOCATION, allocation.pk, to_state=AllocationState.TERMINATING,
        reason=Reason.KILLED_BY_USER,
        actor="user:ann", detail={"stop": "STOP"}, task_id=allocation.task_id,
    )  # fmt: skip
    record(
        Event.Kind.ALLOCATION, allocation.pk, to_state=AllocationState.TERMINATED, reason=Reason.RANK_FAILED,
        detail={"rank": 2, "host": "gpu2", "code": 137, "signal": 9}, task_id=allocation.task_id,
    )  # fmt: skip
    assert store.merge_events(allocation.task_id) == 2
    assert store.merge_events(allocation.task_id) == 0
    lines = stored_lines(allocation.task_id)
    said = [(line.stream, line.level, line.text.split(dialect_words.SEPARATOR)[-1]) for line in lines]
    assert said == [
        ("s", "INFO", "Run 1 was assigned to gpu1 (4 slots), gpu2 (1 slot)."),
        ("o", None, "hello"),
        ("s", "INFO", "Run 1 is being stopped: killed by ann."),
        ("s", "ERROR", "Run 1 ended: a rank failed (rank 2 on gpu2, exit code 137, killed by SIGKILL)."),
    ]


def test_an_event_that_commits_after_one_with_a_higher_id_still_gets_its_line(member: Member) -> None:
    task_id, allocation = member.allocation.task_id, member.allocation
    early = record(Event.Kind.ALLOCATION, allocation.pk, to_state=AllocationState.RUNNING, task_id=task_id)
    late_id = early.pk
    early.delete()
    record(Event.Kind.ALLOCATION, allocation.pk, to_state=AllocationState.RUNNING, task_id=task_id)
    assert store.merge_events(task_id) == 1
    Event.objects.create(
        id=late_id,
        kind=Event.Kind.ALLOCATION,
        subject=allocation.pk,
        to_state=AllocationState.RUNNING,
        task_id=task_id,
    )
    assert store.merge_events(task_id) == 1
    Event.objects.update(at=timezone.now() - timedelta(seconds=store.EVENTS_SETTLE_SECONDS + 60))
    newest = record(Event.Kind.ALLOCATION, allocation.pk, to_state=AllocationState.RUNNING, task_id=task_id)
    assert store.merge_events(task_id) == 1
    log = TaskLog.objects.get(pk=task_id)
    assert log.recent_events == [newest.pk] and log.last_event == newest.pk - 1
    assert store.merge_events(task_id) == 0


def test_logs_of_many_tasks_are_brought_up_to_date_together() -> None:
    members = [make_gang()[0] for _ in range(3)]
    told, quiet, begun = (member.allocation for member in members)
    store.append(begun.task_id, members[2], "gpu1", new_lines("hello"))
    for allocation in (told, begun, told):
        record(
            Event.Kind.ALLOCATION, allocation.pk, to_state=AllocationState.RUNNING, task_id=allocation.task_id
        )
    assert store.unmerged([told.task_id, quiet.task_id]) == [told.task_id]
    with CaptureQueriesContext(connection) as statements:
        assert store.merge_free([told.task_id, quiet.task_id, begun.task_id, told.task_id]) == []
    made = [each for each in statements if each["sql"].strip().startswith("INSERT INTO logs_tasklog")]
    assert len(made) == 2 and len(statements) - len(made) <= 7, "not so many for each"
    numbers = {
        member.allocation.task_id: [line.number for line in stored_lines(member.allocation.task_id)]
        for member in members
    }
    assert numbers == {told.task_id: [1, 2], quiet.task_id: [], begun.task_id: [1, 2]}
    before = Chunk.objects.count()
    assert store.merge_free([told.task_id, quiet.task_id, begun.task_id]) == []
    assert Chunk.objects.count() == before


def test_a_batch_is_let_in_once_and_only_where_the_stream_stands(member: Member) -> None:
    streams.advance(member.pk, 0, 100)
    with pytest.raises(streams.OffsetConflict) as conflict:
        streams.advance(member.pk, 0, 100)
    assert conflict.value.stored == 100 == streams.stored(member.pk)
    with pytest.raises(streams.OffsetConflict):
        streams.advance(member.pk, 200, 300)
    streams.advance(member.pk, 100, 250)
    assert Stream.objects.get(member=member).offset == 250


@pytest.mark.django_db(transaction=True)
def test_writers_of_one_task_get_disjoint_numbers_in_commit_order(member: Member) -> None:
    task_id = member.allocation.task_id

    def write(rank: int) -> None:
        try:
            for i in range(20):
                store.append(task_id, member, "gpu1", new_lines(f"{rank}:{i}", f"{rank}:{i}+", rank=rank))
        finally:
            connection.close()

    writers = [threading.Thread(target=write, args=(rank,)) for rank in range(4)]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join(60)
    lines = stored_lines(task_id)
    assert [line.number for line in lines] == list(range(1, 161))
    for rank in range(4):
        mine = [line.text for line in lines if line.rank == rank]
        assert mine == [text for i in range(20) for text in (f"{rank}:{i}", f"{rank}:{i}+")]


@pytest.mark.django_db(transaction=True)
def test_streams_that_ship_at_once_share_one_log_without_gap_or_repeat() -> None:
    members = make_gang(4)
    task_id = members[0].allocation.task_id
    store.append(task_id, None, "", [])
    failures: list[BaseException] = []

    def ship(member: Member) -> None:
        try:
            streams.advance(member.pk, 0, 0)
            for i in range(30):
                block = Block(1.0, member.index, "stdout", [], [], f"{i}\n{i}+")
                for _ in range(2):  # the second time it is a repeat
                    numbers = store.append_shipped(task_id, member, "h", [block], 10 * i, 10 * i + 10)
                    assert (numbers is None) == (_ == 1)
        except BaseException as error:
            failures.append(error)
        finally:
            connection.close()

    shippers = [threading.Thread(target=ship, args=(member,)) for member in members]
    for shipper in shippers:
        shipper.start()
    for shipper in shippers:
        shipper.join(60)
    assert not failures, failures
    lines = stored_lines(task_id)
    assert [line.number for line in lines] == list(range(1, 241))
    for member in members:
        mine = [line.text for line in lines if line.rank == member.index]
        assert mine == [text for i in range(30) for text in (str(i), f"{i}+")]
        assert streams.stored(member.pk) == 300


def test_a_shipped_batch_waits_for_the_events_before_it(member: Member) -> None:
    allocation = member.allocation
    streams.advance(member.pk, 0, 0)
    store.append(allocation.task_id, None, "", [])
    record(Event.Kind.ALLOCATION, allocation.pk, to_state=AllocationState.RUNNING, task_id=allocation.task_id)
    blocks = new_lines("hello")
    assert store.append_shipped(allocation.task_id, member, "h", blocks, 0, 10) is None
    assert streams.stored(member.pk) == 0
    assert store.merge_events(allocation.task_id) == 1
    assert store.append_shipped(allocation.task_id, member, "h", blocks, 0, 10) == (2, 2)
