"""What the runner makes of reports that follow each other: columns, in which each report is there once."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from metrics.columns import columns_of, reports_of
from trainmaster.protocol import limits_of
from trainmaster.runner.reports import Reports


def report(step: Any, **fields: Any) -> dict[str, Any]:
    values = {
        "type": "metrics",
        "group": "training",
        "steps_completed": step,
        "run_id": 1,
        "metrics": {"loss": 0.5},
    }
    return {**values, "t": 1_790_000_000.5, **fields}


def records_of(
    written: list[dict[str, Any]], most: int = 1000, most_bytes: int = 2**20
) -> list[dict[str, Any]]:
    """The records for the outbox, as `Collector` asks for them; each ends where its last report does."""
    found: list[bytes | None] = []
    reports = Reports(most, most_bytes)
    for end, each in enumerate(written, 1):
        data = json.dumps(each).encode()
        if reports.take(each, data, end):
            continue
        found.append(reports.record("core.rank0.jsonl"))
        reports = Reports(most, most_bytes)
        if not reports.take(each, data, end):
            found.append(json.dumps({"k": "core", "e": end, "d": each}).encode() + b"\n")
    found.append(reports.record("core.rank0.jsonl"))
    return [json.loads(each) for each in found if each]


def told(records: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [
        each
        for record in records
        for table in (record["d"] if record["k"] == "reports" else [record["d"]])
        for each in (reports_of(table) if record["k"] == "reports" else [table])
    ]


ANY = st.builds(
    report,
    st.integers(0, 12) | st.sampled_from([-1, True, 2**63, 1.5, None]),
    group=st.sampled_from(["training", "system", "validation"]),
    run_id=st.sampled_from([1, 1, 1, 2, None, True]),
    metrics=st.dictionaries(
        st.sampled_from(["loss", "lr"]),
        st.floats() | st.integers(0, 3) | st.sampled_from(["NaN", "text", 2**60, None, [1], {"a": 1}]),
    ),
)


@given(st.lists(ANY, max_size=30), st.sampled_from([0, 1, 3, 1000]))
def test_each_report_is_in_the_outbox_once_and_in_the_order_of_its_group(written: Any, most: int) -> None:
    records = records_of(written, most)
    assert [record["e"] for record in records] == sorted({record["e"] for record in records})
    assert sorted(map(as_text, told(records))) == sorted(map(as_text, written))
    for record in records:
        together = [(each["group"], each["steps_completed"]) for each in told([record])]
        if record["k"] == "reports":  # so the order of its tables says nothing
            assert len(set(together)) == len(together) <= most
    for group in ("training", "system", "validation"):
        assert [as_text(each) for each in in_order(records, group)] == [
            as_text(each) for each in written if each["group"] == group
        ]


def in_order(records: list[dict[str, Any]], group: str) -> list[dict[str, Any]]:
    """The reports of a group, those of one record by their steps; validations as they are, table by table."""
    found = []
    for record in records:
        some = [each for each in told([record]) if each["group"] == group]
        is_sorted = group != "validation" and len(some) > 1
        found += sorted(some, key=lambda each: each["steps_completed"]) if is_sorted else some
    return found


def as_text(each: dict[str, Any]) -> str:
    return json.dumps(each, sort_keys=True)


def test_reports_of_numbers_become_columns_that_the_server_takes_whole() -> None:
    written = [report(step, metrics={"loss": 1 / step, "epoch": step, "bad": "NaN"}) for step in range(1, 50)]
    (record,) = records_of(written)
    assert record["k"] == "reports" and record["e"] == 49 and told([record]) == written
    assert all(columns_of(table) for table in record["d"])


def test_a_validation_with_other_names_than_the_one_before_begins_a_record() -> None:
    both, one = {"loss": 0.5, "acc": 0.1}, {"loss": 0.4}
    names = [both, both, one, one, both, both]
    written = [report(step, group="validation", metrics=metrics) for step, metrics in enumerate(names)]
    records = records_of(written)
    assert [record["e"] for record in records] == [2, 4, 6] and told(records) == written
    trained = [report(step, metrics=metrics) for step, metrics in enumerate(names)]
    assert len(records_of(trained)) == 1, "of other groups the steps say it"


def test_groups_that_take_turns_share_a_record() -> None:
    written = [report(step, group=group) for step in range(20) for group in ("training", "system")]
    (record,) = records_of(written)
    assert [(table["group"], len(table["steps"])) for table in record["d"]] == [
        ("training", 20),
        ("system", 20),
    ]


@pytest.mark.parametrize(
    ("most", "most_bytes", "records"), [(0, 2**20, 10), (4, 2**20, 3), (1000, 300, 5), (1000, 1, 10)]
)
def test_a_record_is_bounded(most: int, most_bytes: int, records: int) -> None:
    found = records_of([report(step) for step in range(10)], most, most_bytes)
    assert len(found) == records and len(told(found)) == 10


def test_a_single_report_becomes_a_core_record() -> None:
    (record,) = records_of([report(3)])
    assert record == {"k": "core", "f": "core.rank0.jsonl", "e": 1, "d": report(3)}


@pytest.mark.parametrize(
    "odd", [{"batch_metrics": []}, {"metrics": {}}, {"t": "now"}, {"group": 7}, {"run_id": None}]
)
def test_a_report_with_more_than_numbers_becomes_a_core_record(odd: dict[str, Any]) -> None:
    assert [record["k"] for record in records_of([report(1), report(2, **odd), report(3), report(4)])] == [
        "core", "core", "reports",
    ]  # fmt: skip


def test_a_spec_of_a_server_that_reads_no_columns_asks_for_none() -> None:
    assert limits_of({"limits": {"line_bytes": 7}})["reports_per_record"] == 0
    assert limits_of({"limits": {"reports_per_record": 5}})["reports_per_record"] == 5
