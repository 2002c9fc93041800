"""Chunks of the older form, which were JSON arrays, are the same lines after the migration."""

from importlib import import_module

import pytest

from logs.chunks import LINES_PER_CHUNK, pack_runs, unpack
from logs.contents import Contents
from logs.filters import Clock, Filters
from logs.lines import LogLine

migration = import_module("logs.migrations.0003_chunks_of_text")


@pytest.mark.survive(25)
def test_the_lines_of_an_older_chunk_stay_as_they_were() -> None:
    older = [
        [1.25, 0, "o", None, "plain"],
        [1.25, 0, "o", "ERROR", "bytes \udcff and \x00"],
        [1.5, None, "e", "INFO", ""],
        [0.75, 3, "o", None, "back in time 🚆"],
        [0.75, 3, "s", "WARNING", "by the server"],
    ]
    content, size = migration._new_form([7, "gpu1"], older)
    contents = Contents(content, 11)
    lines = contents.lines(contents.indices(Filters(), 0, LINES_PER_CHUNK, Clock()))
    assert lines == [
        LogLine(11 + number, time, rank, stream, level, text, "gpu1", 7)
        for number, (time, rank, stream, level, text) in enumerate(older)
    ]
    assert size == sum(len(line.text.encode("utf-8", "surrogateescape")) + 1 for line in lines)
    (packed,) = pack_runs(contents.runs(), zstd_level=1)
    assert packed.members == [7] and packed.ranks == [-1, 0, 3] and packed.first_time == 0.75
    again = Contents(unpack(packed.data), 11)
    assert again.lines(range(5)) == lines


def test_a_newline_within_an_older_line_does_not_make_two() -> None:
    content, _ = migration._new_form(
        [None, ""], [[1.0, None, "s", "ERROR", "one\ntwo"], [1.0, None, "s", None, "x"]]
    )
    contents = Contents(content, 1)
    lines = contents.lines(contents.indices(Filters(), 0, 10, Clock()))
    assert [line.text for line in lines] == ["one\\ntwo", "x"]
