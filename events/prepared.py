"""Queries for one row whose SQL Django makes once, for what programs ask many times a second.

To build and compile a query costs Django up to 8 ms, and PostgreSQL answers it within a fraction of one. What is kept
is Django's own: a model that changes changes the SQL, and the row is the model's, with its annotations and relations.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import Any, Generic, TypeVar

from django.db import DEFAULT_DB_ALIAS, connection
from django.db.models import Model, QuerySet
from django.db.models import query as django_query

Row = TypeVar("Row", bound=Model)
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
        sql, parameters, build = self._made
        with connection.cursor() as cursor:
            cursor.execute(sql, [value if each == self._placeholder else each for each in parameters])
            found = cursor.fetchone()
        return None if found is None else build(found)

    @cached_property
    def _made(self) -> tuple[str, tuple[Any, ...], Callable[[tuple[Any, ...]], Row]]:
        """The SQL, its parameters, and what makes the row of an answer, as `ModelIterable` does."""
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

        return sql, parameters, build
