"""The line splitter: pure, so every property is tried on many streams."""

import re
from itertools import pairwise
from typing import NamedTuple

from hypothesis import example, given
from hypothesis import strategies as st

from trainmaster.runner.lines import Block, LineSplitter, cut_at, rank_prefix, rank_runs, shown

LIMIT = 20
PIECES = st.sampled_from([b"a", b"bc", "ä€😀".encode(), b"\xff", b"\n", b"\n", b"word " * 5])
STREAMS = st.lists(PIECES, max_size=40).map(b"".join)
BAR_STREAMS = st.lists(st.one_of(PIECES, st.sampled_from([b"\r", b"\r\n"])), max_size=40).map(b"".join)


def chunked(data: bytes, cuts: list[int]) -> list[bytes]:
    places = sorted({cut % (len(data) + 1) for cut in cuts} | {0, len(data)})
    return [data[start:stop] for start, stop in pairwise(places)]


class Line(NamedTuple):
    text: bytes
    end: int  # behind the block that it came in
    cut: bool


def lines_in(blocks: list[Block]) -> list[Line]:
    lines = []
    for block in blocks:
        texts = shown(block.text).split(b"\n")
        lines += [Line(text, block.end, False) for text in texts[:-1]]
        lines.append(Line(texts[-1], block.end, block.cut))
        assert not (block.cut or block.continues) or len(texts) == 1
    return lines


def blocks_of(
    data: bytes,
    cuts: list[int],
    offset: int = 0,
    before: bytes = b"",
    now: float = 0.0,
    block_bytes: int = 64,
) -> list[Block]:
    splitter = LineSplitter(offset, LIMIT, before, block_bytes)
    blocks: list[Block] = []
    for chunk in chunked(data, cuts):
        blocks.extend(splitter.feed(chunk, now))
    return blocks + splitter.finish()


def split(
    data: bytes,
    cuts: list[int],
    offset: int = 0,
    before: bytes = b"",
    now: float = 0.0,
    block_bytes: int = 64,
) -> list[Line]:
    return lines_in(blocks_of(data, cuts, offset, before, now, block_bytes))


@given(STREAMS, st.lists(st.integers(0, 500)), st.sampled_from([0, 1, 30, 64, 1000]))
def test_joined_pieces_are_the_stream_itself(data: bytes, cuts: list[int], block_bytes: int) -> None:
    blocks = blocks_of(data, cuts, block_bytes=block_bytes)
    lines = lines_in(blocks)
    joined = b"".join(line.text + (b"" if line.cut else b"\n") for line in lines)
    assert joined in (data, data + b"\n")
    assert all(len(line.text) <= LIMIT for line in lines)
    assert all(len(block.text) <= max(block_bytes, LIMIT) for block in blocks)


@given(STREAMS, st.lists(st.integers(0, 500)))
def test_a_splitter_started_behind_any_block_gives_the_rest(data: bytes, cuts: list[int]) -> None:
    blocks = blocks_of(data, cuts)
    for done, block in enumerate(blocks, start=1):
        before, rest = data[block.end - 1 : block.end], data[block.end :]
        again = blocks_of(rest, [], block.end, before)
        assert [line[::2] for line in lines_in(again)] == [line[::2] for line in lines_in(blocks[done:])]
        assert not again or again[0].continues == block.cut


@given(STREAMS, st.lists(st.integers(0, 500)))
def test_a_piece_of_a_cut_line_says_so(data: bytes, cuts: list[int]) -> None:
    blocks = blocks_of(data, cuts)
    assert [block.continues for block in blocks] == [False, *(block.cut for block in blocks)][: len(blocks)]


@given(BAR_STREAMS, st.lists(st.integers(0, 500)))
@example(b"a\r\r\n", [])
def test_progress_bars_lose_only_what_is_overwritten(data: bytes, cuts: list[int]) -> None:
    # What a terminal shows in the end: of each line, what stands behind its last \r.
    lines = split(data, cuts, now=0.5)
    shown = [re.split(rb"\r(?=.)", text.rstrip(b"\r"), flags=re.DOTALL)[-1] for text in data.split(b"\n")]
    if not shown[-1]:
        shown.pop()
    texts = b"".join(line.text for line in lines)
    assert sum(data.count(end) for end in (b"\n",)) <= sum(not line.cut for line in lines)
    for text in shown:
        assert text[:LIMIT] in texts or len(text) > LIMIT
    assert [line.end for line in lines] == sorted(line.end for line in lines)


@given(BAR_STREAMS, st.lists(st.integers(0, 500)))
def test_a_bar_read_anew_from_any_line_ends_the_same(data: bytes, cuts: list[int]) -> None:
    lines = split(data, cuts)
    for line in lines:
        again = split(data[line.end :], [], line.end, data[line.end - 1 : line.end])
        later = [other for other in lines if other.end > line.end]
        assert [other.end for other in again[-1:]] == [other.end for other in later[-1:]]


def test_a_bar_is_kept_once_per_second_and_in_its_last_state() -> None:
    splitter = LineSplitter(0, 100)
    blocks: list[Block] = []
    for tick in range(301):
        blocks += splitter.feed(b"\r%d%%" % tick, tick / 100)
        blocks += splitter.idle(tick / 100)
    blocks += splitter.feed(b"\ndone\n", 3.1)
    texts = [line.text for line in lines_in(blocks)]
    assert texts[-2:] == [b"300%", b"done"]
    assert 4 <= len(texts) <= 6


def test_a_finished_bar_without_newline_appears_when_it_rests() -> None:
    splitter = LineSplitter(0, 100)
    assert splitter.feed(b"50%\r", 0.0) == []
    assert splitter.idle(0.1) == [Block(b"50%", 4)]
    assert splitter.feed(b"100%\r", 0.2) == []
    assert splitter.idle(0.3) == []
    assert splitter.idle(1.2) == [Block(b"100%", 9)]
    assert splitter.feed(b"\nnext\n", 1.3) == [Block(b"next", 15)], "the newline belonged to the bar"


def test_windows_line_ends_are_line_ends_wherever_they_are_cut() -> None:
    assert [line.text for line in split(b"one\r\ntwo\r\n", [4])] == [b"one", b"two"]


@given(st.text(alphabet="aä€😀", min_size=8, max_size=30), st.integers(4, 20))
def test_no_character_is_split(text: str, limit: int) -> None:
    data = text.encode()
    if len(data) > limit:
        data[: cut_at(data, limit)].decode()


def test_a_rank_prefix_is_read_and_removed() -> None:
    assert rank_prefix(b"[rank=12] hello [rank=3]") == (12, b"hello [rank=3]")
    assert rank_prefix(b" [rank=1]x") == (1, b"x")
    assert rank_prefix(b"[rank3]: Traceback") == (3, b"Traceback")
    assert rank_prefix(b"[1,12]<stderr>:text") == (12, b"text")
    assert rank_prefix(b"[0]<stdout>: text") == (0, b"text")
    assert rank_prefix(b"[1,12] text") == (None, b"[1,12] text")
    assert rank_prefix(b"[ranks] text") == (None, b"[ranks] text")
    assert rank_prefix(b"2026 [rank=0] x") == (None, b"2026 [rank=0] x")


def test_lines_of_ranks_become_runs_with_the_offsets_of_the_file() -> None:
    text = b"[rank=1] a\n[rank=1] b\nnobody's\n[rank=0] 1%\r[rank=0] 2%"
    assert list(rank_runs(Block(text, len(text) + 1))) == [
        (1, b"a\nb", 22),
        (None, b"nobody's", 31),
        (0, b"1%\r[rank=0] 2%", len(text) + 1),
    ]
