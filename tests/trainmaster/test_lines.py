"""The line splitter: pure, so every property is tried on many streams."""

import re
from itertools import pairwise

from hypothesis import example, given
from hypothesis import strategies as st

from trainmaster.runner.lines import Line, LineSplitter, cut_at, level_of, rank_prefix

LIMIT = 20
PIECES = st.sampled_from([b"a", b"bc", "ä€😀".encode(), b"\xff", b"\n", b"\n", b"word " * 5])
STREAMS = st.lists(PIECES, max_size=40).map(b"".join)
BAR_STREAMS = st.lists(st.one_of(PIECES, st.sampled_from([b"\r", b"\r\n"])), max_size=40).map(b"".join)


def chunked(data: bytes, cuts: list[int]) -> list[bytes]:
    places = sorted({cut % (len(data) + 1) for cut in cuts} | {0, len(data)})
    return [data[start:stop] for start, stop in pairwise(places)]


def split(
    data: bytes, cuts: list[int], offset: int = 0, after_cr: bool = False, now: float = 0.0
) -> list[Line]:
    splitter = LineSplitter(offset, LIMIT, after_cr)
    lines: list[Line] = []
    for chunk in chunked(data, cuts):
        lines.extend(splitter.feed(chunk, now))
    return lines + splitter.finish()


@given(STREAMS, st.lists(st.integers(0, 500)))
def test_joined_pieces_are_the_stream_itself(data: bytes, cuts: list[int]) -> None:
    lines = split(data, cuts)
    joined = b"".join(line.text + (b"" if line.cut else b"\n") for line in lines)
    assert joined in (data, data + b"\n")
    assert all(len(line.text) <= LIMIT for line in lines)


@given(STREAMS, st.lists(st.integers(0, 500)))
def test_a_splitter_started_at_any_line_end_gives_the_rest(data: bytes, cuts: list[int]) -> None:
    lines = split(data, cuts)
    for done, line in enumerate(lines, start=1):
        assert split(data[line.end :], [], line.end) == split(data[line.end :], cuts, line.end)
        rest = b"".join(later.text for later in lines[done:])
        assert b"".join(later.text for later in split(data[line.end :], [], line.end)) == rest


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
        after_cr = data[line.end - 1 : line.end] == b"\r"
        again = split(data[line.end :], [], line.end, after_cr)
        later = [other for other in lines if other.end > line.end]
        assert [other.end for other in again[-1:]] == [other.end for other in later[-1:]]


def test_a_bar_is_kept_once_per_second_and_in_its_last_state() -> None:
    splitter = LineSplitter(0, 100)
    lines = []
    for tick in range(301):
        lines += splitter.feed(b"\r%d%%" % tick, tick / 100)
        lines += splitter.idle(tick / 100)
    lines += splitter.feed(b"\ndone\n", 3.1)
    texts = [line.text for line in lines]
    assert texts[-2:] == [b"300%", b"done"]
    assert 4 <= len(texts) <= 6


def test_a_finished_bar_without_newline_appears_when_it_rests() -> None:
    splitter = LineSplitter(0, 100)
    assert splitter.feed(b"50%\r", 0.0) == []
    assert splitter.idle(0.1) == [Line(b"50%", 4, False)]
    assert splitter.feed(b"100%\r", 0.2) == []
    assert splitter.idle(0.3) == []
    assert splitter.idle(1.2) == [Line(b"100%", 9, False)]
    assert splitter.feed(b"\nnext\n", 1.3) == [Line(b"next", 15, False)], "the newline belonged to the bar"


def test_windows_line_ends_are_line_ends_wherever_they_are_cut() -> None:
    assert [line.text for line in split(b"one\r\ntwo\r\n", [4])] == [b"one", b"two"]


@given(st.text(alphabet="aä€😀", min_size=8, max_size=30), st.integers(4, 20))
def test_no_character_is_split(text: str, limit: int) -> None:
    data = text.encode()
    if len(data) > limit:
        data[: cut_at(data, limit)].decode()


def test_levels_are_read_at_the_start_and_behind_a_timestamp() -> None:
    expected = {
        b"INFO: started": "INFO",
        b" WARNING: hot": "WARNING",
        b"[ERROR] no": "ERROR",
        b"CRITICAL:x": "CRITICAL",
        b"2026-11-21 05:12:43,123 - root - DEBUG - text": "DEBUG",
        b"2026-11-21 05:12:43,123 INFO text": "INFO",
        b"2026-11-21T05:12:43.123456Z WARN text": "WARNING",
        b"[2026-11-21 05:12:43,123][torch.distributed][ERROR] - text": "ERROR",
        b"05:12:43 | INFO | text": "INFO",
        b"W1121 05:12:43.123000 1234 torch/run.py:766] text": "WARNING",
        b"INFO started": None,
        b"the INFO: of it": None,
        b"INFORMATION: x": None,
        b"2026-11-21 05:12:43 all is well, no ERROR was seen": None,
        b"": None,
    }
    assert {text: level_of(text) for text in expected} == expected


def test_a_rank_prefix_is_read_and_removed() -> None:
    assert rank_prefix(b"[rank=12] hello [rank=3]") == (12, b"hello [rank=3]")
    assert rank_prefix(b" [rank=1]x") == (1, b"x")
    assert rank_prefix(b"2026 [rank=0] x") == (None, b"2026 [rank=0] x")
