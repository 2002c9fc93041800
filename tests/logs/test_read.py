"""Reading logs from a cursor, with filters, on PostgreSQL."""

import random
import time

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from accounts.refusals import Refusal
from jobs.models import Member
from logs import read, scan, store
from logs import written as log_file
from logs.filters import Filters
from logs.levels import Level, parse
from logs.lines import LogLine, NewLine, blocks_of, raw, text_of
from tests.rig.rows import make_gang

pytestmark = pytest.mark.django_db

LEVELS = [None, "INFO", "ERROR"]


@pytest.fixture
def gang(db: None) -> list[Member]:
    """2 hosts x 2 ranks have written 4,000 lines in batches of odd sizes."""
    members, chance, number = make_gang(2), random.Random(7), 0
    while number < 4000:
        member = chance.choice(members)
        batch = []
        for _ in range(min(chance.randrange(1, 1500), 4000 - number)):
            number += 1
            rank = chance.choice([None, member.index * 2, member.index * 2 + 1])
            stream, level = chance.choice(["stdout", "stderr"]), chance.choice(LEVELS)
            batch.append(NewLine(1000.0 + number, rank, stream, level, f"step {number} of Éclair"))
        store.append(member.allocation.task_id, member, member.host.name, blocks_of(batch))
    return members


def everything(task_id: str) -> list[LogLine]:
    lines, after = [], 0
    while True:
        page = read.forward(task_id, after, limit=700)
        lines += page.lines
        after = page.upto
        if page.done:
            return lines


SOME_FILTERS = [
    Filters(),
    Filters(ranks=frozenset({2})),
    Filters(ranks=frozenset({-1, 3})),
    Filters(levels=frozenset({Level.ERROR})),
    Filters(levels=frozenset({Level.UNSPECIFIED, Level.INFO})),
    Filters(streams=frozenset("e")),
    Filters(after_time=1500.0, before_time=2500.0),
    Filters(text="STEP 17"),
    Filters(text="éclair", ranks=frozenset({1})),
    Filters(pattern=r"^step \d+7 "),
    Filters(text="not there"),
]


@pytest.mark.parametrize("filters", SOME_FILTERS, ids=str)
def test_both_directions_and_the_tail_agree_with_a_plain_filter(gang: list[Member], filters: Filters) -> None:
    task_id = gang[0].allocation.task_id
    wanted = [line for line in everything(task_id) if filters.match(line)]
    ahead, after = [], 0
    while True:
        page = read.forward(task_id, after, filters, limit=333)
        assert page.upto >= after and len(page.lines) <= 333
        ahead, after = ahead + page.lines, page.upto
        if page.done:
            break
    assert ahead == wanted and after == 4000
    back: list[LogLine] = []
    before: int | None = None
    while True:
        page = read.backward(task_id, before, filters, limit=333)
        back, before = page.lines + back, page.upto
        if page.done:
            break
    assert back == wanted
    assert read.tail(task_id, filters, 50) == wanted[-50:]


def test_hosts_and_allocations_are_told_apart(gang: list[Member]) -> None:
    task_id, host = gang[0].allocation.task_id, gang[1].host.name
    assert {line.host for line in read.tail(task_id, Filters(hosts=frozenset({host})), 5000)} == {host}
    mine = Filters(allocations=frozenset({gang[0].allocation_id}))
    assert len(read.tail(task_id, mine, 5000)) == 4000
    assert read.tail(task_id, Filters(allocations=frozenset({"other.1"})), 10) == []


def test_lines_of_another_task_never_appear(gang: list[Member]) -> None:
    other = make_gang()[0]
    store.append(
        other.allocation.task_id, other, "x", blocks_of([NewLine(1.0, None, "stdout", None, "other")])
    )
    lines = read.tail(gang[0].allocation.task_id, Filters(ranks=frozenset({-1, 0})), 9999)
    assert "other" not in {line.text for line in lines}
    assert [line.text for line in read.tail(other.allocation.task_id, Filters(), 5)] == ["other"]


def test_a_tail_that_has_no_time_left_gives_up_with_the_newest_lines(member: Member) -> None:
    task_id = member.allocation.task_id
    for number in range(1, 31):
        store.append(task_id, member, "h", blocks_of([NewLine(1.0, 0, "stdout", None, f"line {number}")]))
    wanted = Filters(ranks=frozenset({0}))
    assert [line.number for line in read.tail(task_id, wanted, 30)] == list(range(1, 31))
    found = [line.number for line in read.tail(task_id, wanted, 30, until=time.monotonic())]
    assert found and found == list(range(31 - len(found), 31)) and len(found) < 30


def test_an_empty_log_is_read_without_ado(member: Member) -> None:
    task_id = member.allocation.task_id
    assert read.forward(task_id) == read.LogPage([], 0, True)
    assert read.backward(task_id) == read.LogPage([], 1, True)
    assert read.tail(task_id, Filters(), 5) == [] and list(read.pieces(task_id)) == []


@pytest.mark.survive(29)
def test_the_download_of_a_rank_is_the_exact_bytes(member: Member) -> None:
    task_id = member.allocation.task_id
    written = [b"\xff\x00 odd", b"plain", "Gleis 9¾".encode(), b""]
    lines = [NewLine(1.0, 3, "stdout", None, text.decode("utf-8", "surrogateescape")) for text in written]
    lines.append(NewLine(1.0, 4, "stdout", None, "of another rank"))
    store.append(task_id, member, "h", blocks_of(lines))
    assert b"".join(log_file.written(task_id, Filters(ranks=frozenset({3})))) == b"\n".join(written) + b"\n"


@pytest.mark.parametrize("pattern", ["(", "a{9999999999999999999}", "x" * 1001])
def test_a_bad_pattern_gets_a_sentence(pattern: str) -> None:
    with pytest.raises(Refusal, match="regular expression"):
        Filters(pattern=pattern)


def test_a_pattern_that_explodes_is_given_up_with_a_sentence(member: Member) -> None:
    task_id = member.allocation.task_id
    line = NewLine(1.0, 0, "stdout", None, "a" * 5000 + "b" * 5000 + "!")
    store.append(task_id, member, "h", blocks_of([line]))
    begin = time.monotonic()
    with pytest.raises(Refusal, match="nested repeats"):
        read.forward(task_id, 0, Filters(pattern=r"^(a+|b+|(ab|a|b)+)+$"))
    assert time.monotonic() - begin < 30, "without a limit it would take days"


def test_a_plain_pattern_gets_through_a_log_that_it_takes_long_to_read(
    member: Member, monkeypatch: pytest.MonkeyPatch
) -> None:
    task_id = member.allocation.task_id
    for number in range(5):
        store.append(task_id, member, "h", blocks_of([NewLine(1.0, 0, "stdout", None, f"line {number}")]))
    monkeypatch.setattr(scan, "PATTERN_SCAN_SECONDS", 0.0)
    wanted = Filters(pattern="line [04]")
    first = read.forward(task_id, 0, wanted)
    assert ([line.text for line in first.lines], first.done) == (["line 0"], False), "it says how far it came"
    texts, upto, is_done = [], 0, False
    while not is_done:
        lines, upto, is_done = read.forward(task_id, upto, wanted)
        texts += [line.text for line in lines]
    assert texts == ["line 0", "line 4"]
    assert [line.text for line in read.tail(task_id, wanted, 10)] == texts


def test_a_text_is_found_in_every_one_of_many_chunks_in_order_whether_or_not_a_read_gives_up_early(
    member: Member, monkeypatch: pytest.MonkeyPatch
) -> None:
    task_id = member.allocation.task_id
    chunks = 5 * scan.CHUNKS_PER_FETCH[-1]  # reads go several fetches ahead
    for number in range(chunks):
        lines = [NewLine(1.0, 0, "stdout", None, f"step {number}\nother")]
        store.append(task_id, member, "h", blocks_of(lines))
    wanted, texts = Filters(text="STEP"), [f"step {number}" for number in range(chunks)]
    assert [line.text for line in read.tail(task_id, wanted, chunks)] == texts
    monkeypatch.setattr(read, "SCAN_SECONDS", 60.0)
    assert [line.text for line in read.forward(task_id, 0, wanted).lines] == texts
    assert read.forward(task_id, 0, wanted, 100).upto == 200, (
        "a full page goes no further than its last chunk"
    )
    monkeypatch.setattr(read, "SCAN_SECONDS", 0.0)
    page, found = read.forward(task_id, 0, wanted), list[str]()
    while True:
        found += [line.text for line in page.lines]
        if page.done:
            break
        page = read.forward(task_id, page.upto, wanted)
    assert found == texts


def test_levels_are_read_in_both_spellings() -> None:
    assert parse("LOG_LEVEL_WARNING") == parse("warning") == Level.WARNING
    assert Level.ERROR.determined == "LOG_LEVEL_ERROR"
    with pytest.raises(Refusal, match="allowed: UNSPECIFIED, TRACE"):
        parse("LOUD")


@settings(
    max_examples=40,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(
    st.lists(st.text(st.characters(exclude_categories=[]), max_size=40), min_size=1, max_size=30), st.data()
)
def test_any_text_is_found_by_any_part_of_it(member: Member, texts: list[str], data: st.DataObject) -> None:
    task_id = member.allocation.task_id
    texts = [text_of(raw(text.replace("\n", ""))) for text in texts]
    lines = [NewLine(1.0, 0, "stdout", None, text) for text in texts]
    first, last = store.append(task_id, member, "h", blocks_of(lines))
    page = read.forward(task_id, first - 1, limit=len(texts))
    assert [line.text for line in page.lines] == texts and page.upto == last
    chosen = data.draw(st.sampled_from(texts))
    start = data.draw(st.integers(0, len(chosen)))
    part = chosen[start : start + 5]
    found = read.forward(task_id, first - 1, Filters(text=part), limit=len(texts))
    expected = [text for text in texts if part.lower() in text.lower()]
    assert [line.text for line in found.lines] == expected
