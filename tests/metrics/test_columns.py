"""Columns of reports: the same as the reports alone, whatever a runner or a job puts into them."""

from __future__ import annotations

import json
import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from metrics import ingest
from metrics.columns import columns_of, count_of, reports_of
from metrics.table import Table

AT = 1_790_000_000.25
NUMBERS = (
    st.floats(width=64, allow_nan=False, allow_infinity=False)
    | st.integers(-(2**53), 2**53)
    | st.sampled_from(["NaN", "Infinity", "-Infinity"])
)


@st.composite
def tables(draw: st.DrawFn) -> dict[str, Any]:
    steps = sorted(draw(st.sets(st.integers(0, 20), min_size=1, max_size=6)))
    names = draw(st.sets(st.sampled_from(["loss", "lr", "epoch"]), min_size=1))
    times = [AT + draw(st.integers(0, 1000)) / 8 for _ in steps]
    values = {
        name: draw(st.lists(NUMBERS, min_size=len(steps), max_size=len(steps))) for name in sorted(names)
    }
    run = draw(st.integers(1, 2))
    return {"group": "training", "run_id": run, "steps": steps, "times": times, "values": values}


def alone(table: dict[str, Any]) -> list[ingest.Report]:
    return [
        ingest.Report(each["run_id"], each["group"], each["steps_completed"], each["t"], each["metrics"])
        for each in reports_of(table)
    ]


def shown(table: Table) -> list[Any]:
    values = [sorted(each.items()) for each in table.as_reported()]
    rows = (table.steps.tolist(), table.times.tolist(), table.runs.tolist(), values)
    return list(zip(*rows, strict=True))


@given(st.lists(tables(), min_size=1, max_size=4))
def test_columns_become_what_their_reports_alone_become(some: list[dict[str, Any]]) -> None:
    read = [columns_of(json.loads(json.dumps(table))) for table in some]
    columns, together, singly = [each for each in read if each], ingest.Stored(), ingest.Stored()
    assert len(columns) == len(some)
    found = ingest.together(columns, together)
    expected = ingest.together([report for table in some for report in alone(table)], singly)
    assert repr(shown(found)) == repr(shown(expected)) and together == singly
    assert {name: column.whole for name, column in found.columns.items()} == {
        name: column.whole for name, column in expected.columns.items()
    }


PLAIN: dict[str, Any] = {
    "group": "training", "run_id": 1, "steps": [1, 2], "times": [AT, AT + 1], "values": {"loss": [0.5, 0.25]},
}  # fmt: skip
#: what is read report by report, as if training code had written each
ODD: dict[str, dict[str, Any]] = {
    "no run": {"run_id": None},
    "a run that is a truth": {"run_id": True},
    "a run beyond the database": {"run_id": 2**70},
    "no group": {"group": None},
    "a group that PostgreSQL refuses": {"group": "a\0"},
    "a group of many characters": {"group": "g" * 200},
    "steps that repeat": {"steps": [1, 1]},
    "steps that fall": {"steps": [2, 1]},
    "a step below nothing": {"steps": [-1, 2]},
    "a step beyond the database": {"steps": [1, 2**70]},
    "steps that are truths": {"steps": [False, True]},
    "steps with a fraction": {"steps": [1.0, 2.5]},
    "times of words": {"times": ["now", AT]},
    "times that are no numbers": {"times": [math.nan, AT]},
    "a time of hundreds of digits": {"times": [10**400, AT]},
    "a time beyond all clocks": {"times": [1e300, AT]},
    "text": {"values": {"loss": ["low", 0.25]}},
    "nothing": {"values": {"loss": [None, 0.25]}},
    "truths": {"values": {"loss": [True, False]}},
    "lists": {"values": {"loss": [[1], [2]]}},
    "objects": {"values": {"loss": [{"a": 1}, {}]}},
    "a name that PostgreSQL refuses": {"values": {"\ud800": [1, 2]}},
    "no names": {"values": {}},
}


@pytest.mark.parametrize("what", ODD)
def test_odd_columns_are_read_report_by_report(what: str) -> None:
    table = {**PLAIN, **ODD[what]}
    assert columns_of(table) is None
    assert [each["steps_completed"] for each in reports_of(table)] == table["steps"]
    assert [each["metrics"] for each in reports_of(table)] == [
        {name: column[row] for name, column in table["values"].items()} for row in range(2)
    ]


@pytest.mark.parametrize("values", [[math.nan, math.inf], [1e999, 0.5], ["NaN", 1], [2**60, 1], [1, 0.5]])
def test_numbers_of_all_kinds_are_columns(values: list[Any]) -> None:
    found = columns_of({**PLAIN, "values": {"loss": values}})
    assert found is not None and np.array_equal(found.table.steps, [1, 2])
    expected = ingest.together(alone({**PLAIN, "values": {"loss": values}}), ingest.Stored())
    assert repr(shown(found.table)) == repr(shown(expected))


@pytest.mark.parametrize(
    ("table", "sentence"),
    [
        ([], "must be an object with lists"),
        ({}, "must be an object with lists"),
        ({**PLAIN, "values": [1, 2]}, "must be an object with lists"),
        ({**PLAIN, "steps": 5}, "steps of a table of reports is int; it must be a list"),
        ({**PLAIN, "steps": "12"}, "steps of a table of reports is str; it must be a list"),
        ({**PLAIN, "times": [AT]}, "times of a table of reports has 1 entries, steps has 2"),
        ({**PLAIN, "values": {"loss": [1, 2, 3]}}, "values of 'loss' of a table of reports has 3 entries, steps has 2"),
        ({**PLAIN, "values": {"loss": {"0": 1}}}, "values of 'loss' of a table of reports is dict; it must be a list"),
    ],
)  # fmt: skip
def test_what_is_no_table_is_refused_with_a_sentence(table: Any, sentence: str) -> None:
    assert columns_of(table) is None
    with pytest.raises(ValueError, match=sentence):
        reports_of(table)


@pytest.mark.parametrize("shipped", [True, False])
def test_reports_that_would_be_too_large_as_one_table_are_stored_in_parts(
    shipped: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ingest, "CELLS", 60)
    some = [{**PLAIN, "steps": [2 * at, 2 * at + 1], "values": {f"m{at}": [1, 2]}} for at in range(30)]
    read = [columns_of(table) for table in some] if shipped else [each for t in some for each in alone(t)]
    reports: list[Any] = [None, *read, None]
    parts = ingest.parts(reports)
    assert [each for part in parts for each in part] == reports and len(parts) < 10
    for part in parts:
        table = ingest.together([each for each in part if each], ingest.Stored())
        assert len(table) * len(table.columns) <= 60
    assert ingest.parts(reports[:3]) == [reports[:3]]


def test_what_a_table_says_it_holds_is_counted_before_it_is_read() -> None:
    assert [count_of(each) for each in (PLAIN, {"steps": 7}, [], None)] == [2, 0, 0, 0]
