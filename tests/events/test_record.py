"""Event rows of one transaction: by one statement, in their order, and none of what was undone."""

import pytest
from django.db import DataError, connection, transaction
from django.test.utils import CaptureQueriesContext

from events.models import Event
from events.record import record, together

pytestmark = pytest.mark.django_db


def step(name: str) -> None:
    record(Event.Kind.JOB, name, to_state="ACTIVE", task_id="of the test")


def names() -> list[str]:
    return list(Event.objects.filter(task_id="of the test").order_by("id").values_list("subject", flat=True))


def test_rows_are_inserted_together_and_in_their_order() -> None:
    with CaptureQueriesContext(connection) as statements, transaction.atomic(), together():
        for name in "abc":
            step(name)
        with together():
            step("d")
    assert len([each for each in statements if "INSERT" in each["sql"]]) == 1
    assert names() == ["a", "b", "c", "d"]


def test_whoever_reads_events_finds_those_before() -> None:
    with transaction.atomic(), together():
        step("a")
        assert names() == ["a"]
        Event.objects.bulk_create([Event(kind=Event.Kind.JOB, subject="b", task_id="of the test")])
        step("c")
    assert names() == ["a", "b", "c"]


def test_what_a_savepoint_undoes_leaves_no_row() -> None:
    with transaction.atomic(), together():
        step("before")
        with pytest.raises(RuntimeError), transaction.atomic():
            step("undone")
            raise RuntimeError("undone")
        with transaction.atomic():
            step("within")
        step("after")
    assert names() == ["before", "within", "after"]


@pytest.mark.parametrize("text", ["a\x00b", "\ud800"])
def test_a_row_that_cannot_be_inserted_costs_its_savepoint_alone(text: str) -> None:
    with transaction.atomic(), together():
        step("before")
        with pytest.raises(DataError), transaction.atomic():
            step("of the same savepoint")
            step(text)
        with pytest.raises(DataError), transaction.atomic():
            record(Event.Kind.JOB, "detail", task_id="of the test", detail={"title": text})
        step("after")
    assert names() == ["before", "after"]


def test_nothing_waits_after_a_failure() -> None:
    with pytest.raises(RuntimeError), transaction.atomic(), together():
        step("undone")
        raise RuntimeError("undone")
    step("later")
    assert names() == ["later"]
