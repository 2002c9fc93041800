"""Whatever blocks are appended, what is read is what a plain list of lines and a plain filter say."""

from dataclasses import replace
from datetime import timedelta
from typing import NamedTuple

import pytest
from django.utils import timezone
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from jobs.models import Member
from logs import merging, read, store
from logs.chunks import BYTES_PER_CHUNK, LINES_PER_CHUNK
from logs.filters import Filters
from logs.levels import Level
from logs.lines import Block, LogLine, raw, text_of
from logs.models import Chunk
from logs.written import written
from tests.rig.rows import make_gang

pytestmark = pytest.mark.django_db

POISON = st.sampled_from(
    [
        "",
        "\x00",
        "\udcff\udc80",
        "\x1b[31mred\x1b[0m",
        "<script>alert(1)</script>",
        "İstanbul",
        "\u212a",
        "ΑΣ",
        "\r",
        "loss 1.5",
    ]
)
ANY_LINE = st.one_of(POISON, st.text(st.characters(exclude_characters="\n"), max_size=12))


class Told(NamedTuple):
    """Lines as they are handed in."""

    member: int
    blocks: list[Block]


@st.composite
def blocks(draw: st.DrawFn) -> Block:
    lines = draw(st.lists(ANY_LINE, min_size=1, max_size=6))
    index = st.integers(0, len(lines) - 1)
    levels = draw(st.dictionaries(index, st.sampled_from(["INFO", "ERROR", "WARNING"]), max_size=3))
    cut = sorted(draw(st.sets(index, max_size=2)))
    rank = draw(st.sampled_from([None, 0, 1, 7]))
    time = draw(st.integers(0, 40)) / 8
    return Block(
        time, rank, draw(st.sampled_from(["stdout", "stderr"])), sorted(levels.items()), cut, "\n".join(lines)
    )


appends = st.lists(
    st.builds(Told, st.integers(0, 1), st.lists(blocks(), min_size=1, max_size=4)), min_size=1, max_size=6
)
some_filters = st.builds(
    Filters,
    ranks=st.frozensets(st.sampled_from([-1, 0, 1, 7]), max_size=2),
    levels=st.frozensets(st.sampled_from([Level.UNSPECIFIED, Level.INFO, Level.ERROR]), max_size=2),
    streams=st.frozensets(st.sampled_from("oes"), max_size=1),
    after_time=st.none() | st.integers(0, 40).map(lambda eighths: eighths / 8),
    before_time=st.none() | st.integers(0, 40).map(lambda eighths: eighths / 8),
    text=st.just("") | st.sampled_from(["a", "İ", "k", "\u03c3", "LOSS", "1.5", "script", "\x00", "0"]),
    pattern=st.just("") | st.sampled_from(["^$", "[0-9]", "red|loss"]),
)


def expected(told: list[Told], members: list[Member], first: int) -> list[LogLine]:
    lines = []
    for member, given_blocks in told:
        for block in given_blocks:
            named = dict(block.levels)
            for index, text in enumerate(block.text.split("\n")):
                lines.append(
                    LogLine(
                        first + len(lines), block.time, block.rank, block.stream[3], named.get(index),
                        text_of(raw(text)),
                        members[member].host.name, members[member].pk, index in block.cut,
                    )
                )  # fmt: skip
    return lines


def exact(lines: list[LogLine]) -> bytes:
    """A cut line stands where what goes on with it has its end."""
    parts: list[bytes] = []
    held: dict[tuple[int | None, int | None, str], bytes] = {}
    for line in lines:
        text = held.pop(_source(line), b"") + raw(line.text)
        if line.cut:
            held[_source(line)] = text
        else:
            parts.append(text + b"\n")
    return b"".join(parts + [text + b"\n" for text in held.values()])


def _source(line: LogLine) -> tuple[int | None, int | None, str]:
    return line.member, line.rank, line.stream


@settings(
    max_examples=60,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(appends, some_filters, st.integers(1, 9), st.booleans())
def test_reads_agree_with_a_plain_filter(
    db: None, told: list[Told], filters: Filters, limit: int, merged: bool
) -> None:
    members = make_gang(2)
    task_id = members[0].allocation.task_id
    for member, given_blocks in told:
        store.append(task_id, members[member], members[member].host.name, given_blocks)
    if merged:
        merging.merge(task_id, timezone.now() + timedelta(seconds=1), ended=True)
    lines = expected(told, members, 1)
    wanted = [line for line in lines if filters.match(line)]
    assert [*_forward(task_id, filters, limit)] == wanted
    assert (
        read.tail(task_id, filters, 10**6) == wanted and read.tail(task_id, filters, limit) == wanted[-limit:]
    )
    assert b"".join(written(task_id, filters)) == exact(wanted)
    for member in members:
        mine = replace(filters, hosts=frozenset({member.host.name}))
        assert read.tail(task_id, mine, 10**6) == [line for line in wanted if line.member == member.pk]
    numbers = [line.number for line in lines if line.time >= 2.5]
    assert read.number_at(task_id, 2.5) == (numbers[0] if numbers else len(lines) + 1)


def _forward(task_id: str, filters: Filters, limit: int) -> list[LogLine]:
    found: list[LogLine] = []
    after = 0
    while True:
        page = read.forward(task_id, after, filters, limit)
        assert len(page.lines) <= limit and page.upto >= after
        found, after = found + page.lines, page.upto
        if page.done:
            return found


@pytest.mark.parametrize(
    "text",
    ["\n" * 3 * LINES_PER_CHUNK, "x" * 5_000_000, ("y" * 900 + "\n") * 1000, "z" * 300_000 + "\n" + "short"],
)
def test_large_blocks_are_divided_between_lines(member: Member, text: str) -> None:
    task_id = member.allocation.task_id
    last = text.count("\n")
    block = Block(1.0, 0, "stdout", [(0, "ERROR"), (last, "INFO")], [last // 2], text)
    store.append(task_id, member, "h", [block])
    lines = read.tail(task_id, Filters(), 10**6)
    assert "\n".join(line.text for line in lines) == text
    assert [line.number for line in lines] == list(range(1, last + 2))
    assert [line.number for line in lines if line.cut] == [last // 2 + 1]
    assert lines[-1].level == "INFO"
    for chunk in Chunk.objects.filter(task_id=task_id):
        assert chunk.last_line - chunk.first_line < LINES_PER_CHUNK
        assert chunk.text_bytes <= BYTES_PER_CHUNK or chunk.first_line == chunk.last_line


def test_a_cut_line_is_one_in_the_download_across_chunks_but_never_joined_with_another_ranks(
    member: Member,
) -> None:
    task_id = member.allocation.task_id
    halves = [Block(1.0, 0, "stdout", [], [0], "half"), Block(1.0, 0, "stdout", [], [], "way")]
    store.append(task_id, member, "h", halves[:1])
    store.append(task_id, member, "h", [Block(1.0, 1, "stdout", [], [], "other")])
    store.append(task_id, member, "h", halves[1:])
    assert b"".join(written(task_id, Filters())) == b"other\nhalfway\n"
    assert b"".join(written(task_id, Filters(ranks=frozenset({0})))) == b"halfway\n"
    assert [piece.data for part in read.pieces(task_id, after=2) for piece in part] == [b"way\n"]
    assert [piece.data for part in read.pieces(task_id, upto=1) for piece in part] == [b"half"]
