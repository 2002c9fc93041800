"""The table at the end of `make bench`: no benchmark is left out of it, and it says which bounds do not hold."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from benchmarks import rows, runs
from benchmarks.rows import Row

#: run by hand: their figures are in the note of the change that they were written for
BY_HAND = {
    "fault_trace",
    "first_minutes",
    "hangs",
    "live_viewers",
    "scale",
    "slurm_replay",
    "virtual_forecasts",
}


def test_every_benchmark_is_run() -> None:
    makefile = (rows.ROOT / "Makefile").read_text().replace("\\\n", " ")
    listed = re.search(r"^BENCHMARKS = (.*)$", makefile, re.M)
    assert listed is not None
    programs = {
        path.stem for path in Path(rows.__file__).parent.glob("*.py") if "\ndef main(" in path.read_text()
    }
    assert set(listed[1].split()) == programs - BY_HAND - {"runs"}


@pytest.mark.parametrize(
    ("row", "holds"),
    [
        (Row("a time", 900, "ms", goal=300), None),
        (Row("a ratio", 1.2, "x ssh", most=1.25, goal=1.0), True),
        (Row("a ratio", 1.3, "x ssh", most=1.25, goal=1.0), False),
        (Row("a share", 0.74, "of all", least=0.75, most=0.85), False),
        (Row("a share", 0.86, "of all", least=0.75, most=0.85), False),
    ],
)
def test_bounds_stand_where_they_were_asked_for(row: Row, holds: bool | None) -> None:
    assert row.holds is holds


def test_the_table_has_all_rows_and_tells_what_is_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rows, "KEPT", tmp_path / "bench")
    found = [Row("first line", 1.31, "x ssh", most=1.25, goal=1.0), Row("usable", 211, "ms", goal=1000)]
    assert rows.finish(tmp_path / "gang.md", "# A report\n", found) == 0, (
        "a bound that is missed is no failure"
    )
    assert (tmp_path / "gang.md").read_text() == "# A report\n"
    assert rows.not_measured(tmp_path / "short.md", "Slurm is not installed") == 2
    text, failed = rows.table(["gang", "pages", "short"])
    assert "| gang | first line | 1.31 x ssh | at most 1.25 | 1 | missed |" in text
    assert "| gang | usable | 211 ms |  | 1,000 |  |" in text
    assert "| pages | not measured, because it failed: see what it printed above |" in text
    assert "| short | not measured, because Slurm is not installed |" in text
    assert failed == ["pages"]


def test_a_run_of_all_tells_what_each_took(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(rows, "KEPT", tmp_path / "bench")
    assert runs.main(["no_such_benchmark"]) == 1
    printed = capsys.readouterr().out
    assert "| no_such_benchmark | not measured, because it failed" in printed
    assert re.search(r"^\| all \| \d+ \| \d+ \|$", printed, re.M)
    assert (tmp_path / "bench" / "table.md").read_text() in printed
