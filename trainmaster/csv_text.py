"""Tables as CSV that people open in a spreadsheet."""

from __future__ import annotations

import csv
import io
from typing import Iterable, Sequence

#: what a spreadsheet takes for the beginning of a formula
_FORMULA = ("=", "+", "-", "@", "\t", "\r")


def lines(rows: Iterable[Sequence[object]]) -> str:
    """The rows as lines. Text that a spreadsheet would compute is quoted with an apostrophe, as it is typed there.

    Names, labels and metrics are their users' words, and a formula in them may send other cells elsewhere.
    """
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows([_inert(each) for each in row] for row in rows)
    return text.getvalue()


def _inert(cell: object) -> object:
    if not isinstance(cell, str) or len(cell) < 2 or not cell.startswith(_FORMULA):
        return cell
    try:
        float(cell)
    except ValueError:
        return "'" + cell
    return cell
