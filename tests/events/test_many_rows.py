"""Rows that are inserted together: each has its own values, the shared ones and the defaults."""

import pytest
from django.db import DataError

from events.many_rows import insert
from events.models import Event
from hosts.models import ResourcePool
from hosts.pools import default_pool


@pytest.mark.django_db
def test_each_row_has_its_own_values_what_all_share_and_the_defaults() -> None:
    details = [{"sentence": "100 % of 'it'", "none": None}, {}, {"hosts": ["gpu1"]}]
    columns = {"subject": ["c", "a", "b"], "detail": details, "job_id": [None, None, None]}
    keys = insert(Event, columns, kind=Event.Kind.TASK, actor="scheduler")
    rows = [Event.objects.get(pk=key) for key in keys]
    assert [(row.subject, row.detail) for row in rows] == list(zip("cab", details, strict=True))
    alone = Event.objects.create(kind=Event.Kind.TASK, subject="d", actor="scheduler")
    for field in ("kind", "actor", "from_state", "reason", "origin", "job_id", "task_id", "experiment_id"):
        assert {getattr(row, field) for row in rows} == {getattr(alone, field)}, field
    assert all(row.pools == [] and row.at is not None for row in rows)


@pytest.mark.django_db
def test_a_value_that_is_too_long_is_refused_and_not_cut() -> None:
    with pytest.raises(DataError):
        insert(Event, {"subject": ["x" * 129]}, kind=Event.Kind.TASK)


@pytest.mark.django_db
def test_rows_that_exist_already_are_left_out_where_that_is_asked() -> None:
    there = default_pool().name
    assert len(insert(ResourcePool, {"name": [there, "other"]}, ignore_conflicts=True)) == 1
    assert ResourcePool.objects.filter(name__in=[there, "other"]).count() == 2
