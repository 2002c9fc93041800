"""Statements that are made once, for what programs ask many times a second.

To build and compile a query costs Django up to 8 ms, and to plan it costs PostgreSQL up to 16 ms; to answer it, both
need a fraction of one. Django makes the SQL of a `Prepared` once: a model that changes changes the SQL, and the row is
the model's, with its annotations and relations. PostgreSQL keeps the plan of what is executed by `cursor`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cached_property
from typing import Any, Generic, TypeVar

import psycopg
from django.conf import settings
from django.db import DEFAULT_DB_ALIAS, connection
from django.db.backends.utils import CursorWrapper
from django.db.models import Model, QuerySet
from django.db.models import query as django_query

Row = TypeVar("Row", bound=Model)
Build = Callable[[tuple[Any, ...]], Any]
_BIGGEST = 2**63  # PostgreSQL's bigint ends before it


class Prepared(Generic[Row]):
    """The first of these rows that has a value in a column. `placeholder`: a value that none has.

    `rows` is called once, at the first question, so nothing in it may depend on the time or on who asks.
    """

    def __init__(
        self, rows: Callable[[], QuerySet[Row]], column: str = "pk", placeholder: Any = -1_900_000_019
    ) -> None:
        self._rows, self._column, self._placeholder = rows, column, placeholder

    def find(self, value: Any) -> Row | None:
        """The first row with this value, or None."""
        if isinstance(value, int) and not -_BIGGEST <= value < _BIGGEST:
            return None
        sql, count, build = self._made
        with cursor() as asks:
            asks.execute(sql, [value] * count)
            found = asks.fetchone()
        return None if found is None else build(found)

    @cached_property
    def _made(self) -> tuple[str, int, Build]:
        """The SQL, how often it takes the value, and what makes the row of an answer, as `ModelIterable` does."""
        query = self._rows().filter(**{self._column: self._placeholder})[:1].query
        compiler: Any = query.get_compiler(DEFAULT_DB_ALIAS)
        sql, parameters = compiler.as_sql()
        assert self._placeholder in parameters
        model, fields = compiler.klass_info["model"], compiler.klass_info["select_fields"]
        first, end = fields[0], fields[-1] + 1
        names = [each[0].target.attname for each in compiler.select[first:end]]
        converters = compiler.get_converters([each[0] for each in compiler.select])
        populators: Any = django_query.get_related_populators
        relations = populators(compiler.klass_info, compiler.select, DEFAULT_DB_ALIAS)
        annotations = list(compiler.annotation_col_map.items())

        def build(answer: tuple[Any, ...]) -> Row:
            (values,) = compiler.apply_converters([answer], converters) if converters else [answer]
            row: Row = model.from_db(DEFAULT_DB_ALIAS, names, values[first:end])
            for relation in relations:
                relation.populate(values, row)
            for name, place in annotations:
                setattr(row, name, values[place])
            return row

        return _with_constants(sql, parameters, self._placeholder), parameters.count(self._placeholder), build


def _with_constants(sql: str, parameters: tuple[Any, ...], placeholder: Any) -> str:
    """The SQL with its parameters written into it, all but the placeholder."""
    connection.ensure_connection()
    constants = [
        "%s" if each == placeholder else psycopg.sql.quote(each, connection.connection).replace("%", "%%")
        for each in parameters
    ]
    return sql.replace("%%", "%%%%") % tuple(constants)


@contextmanager
def cursor() -> Iterator[CursorWrapper]:
    """A cursor that sends parameters apart from the SQL, so that PostgreSQL keeps the plan of what comes again.

    Django's own writes them into the SQL, bytes as hex, and PostgreSQL plans each one again.
    """
    connection.ensure_connection()
    driver: Any = connection.connection
    driver.prepare_threshold = settings.PREPARE_AFTER or None
    try:
        with connection.wrap_database_errors, psycopg.Cursor(driver) as own:
            yield connection._prepare_cursor(
                own
            )  # what Django's `cursor` does: tests count its statements, too
    finally:
        driver.prepare_threshold = None
