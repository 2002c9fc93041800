"""Statements that are made once, for what programs ask many times a second.

To build and compile a query costs Django up to 8 ms, and to plan it costs PostgreSQL up to 16 ms; to answer it, both
need a fraction of one. Django makes the SQL of a `Prepared` once: a model that changes changes the SQL, and the row is
the model's, with its annotations and relations. PostgreSQL keeps the plan of what is executed by `cursor`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache, cached_property
from typing import Any, Generic, NamedTuple, TypeVar

import psycopg
from django.conf import settings
from django.db import DEFAULT_DB_ALIAS, NotSupportedError, connection, transaction
from django.db.backends.utils import CursorWrapper
from django.db.models import Model, QuerySet
from django.db.models import query as django_query

Row = TypeVar("Row", bound=Model)
Values = tuple[Any, ...]
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
        if not _is_askable(value):
            return None
        expected = _expected.get()
        return self._found(value) if expected is None else expected.find(self, value)

    def get(self, value: Any) -> Row:
        """The first row with this value; raises the model's DoesNotExist."""
        row = self.find(value)
        if row is None:
            model: Any = self._rows().model
            raise model.DoesNotExist(f"no {model.__name__} with {self._column} {value!r}")
        return row

    def _found(self, value: Any) -> Row | None:
        if self._made.locks and not connection.in_atomic_block:
            raise transaction.TransactionManagementError(
                "A row is locked within a transaction, not outside of one."
            )
        answer = _answer(self._sql, [value])
        return None if answer is None else self._made.build(answer)

    @cached_property
    def _sql(self) -> str:
        return "$1".join(self._made.parts)

    @cached_property
    def _made(self) -> _Made:
        """The statement, and what makes the row of an answer, as `ModelIterable` does."""
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

        def build(answer: Values) -> Row:
            (values,) = compiler.apply_converters([answer], converters) if converters else [answer]
            row: Row = model.from_db(DEFAULT_DB_ALIAS, names, values[first:end])
            for relation in relations:
                relation.populate(values, row)
            for name, place in annotations:
                setattr(row, name, values[place])
            return row

        return _Made(
            _parts(sql, parameters, self._placeholder),
            build,
            len(compiler.select),
            first + names.index(model._meta.pk.attname),
            query.select_for_update,
        )


class _Made(NamedTuple):
    """The SQL around the places of the value; how many columns the answer has, which of them no row lacks, and
    whether the row is locked."""

    parts: list[str]
    build: Callable[[Values], Any]
    columns: int
    key: int
    locks: bool


@contextmanager
def ahead(statement: Prepared[Any], value: Any) -> Iterator[None]:
    """Within this, the first question to another `Prepared` brings the answer to this one along.

    So a request learns who asks and what they ask for in one round trip. The next `find` of this value takes that
    answer, once: then it is asked again, as for whoever has changed the row.
    """
    token = _expected.set(_Expected(statement, value) if _is_askable(value) else None)
    try:
        yield
    finally:
        _expected.reset(token)


class _Expected:
    def __init__(self, statement: Prepared[Any], value: Any) -> None:
        self._statement, self._value = statement, value
        #: the values that came along until they are taken; None before the first question. Most logins that fail end
        #: there, so a row is made of them only then.
        self._rows: list[Values] | None = None

    def find(self, asked: Prepared[Any], value: Any) -> Any:
        if asked is self._statement and value == self._value and self._rows:
            row, made = self._rows.pop(), self._statement._made
            return None if row[made.key] is None else made.build(row)
        if asked is self._statement or self._rows is not None:
            self._rows = self._rows or []  # the first question is over
            return asked._found(value)
        here, other = asked._made, self._statement._made
        answer = _answer(_joined(asked, self._statement), [value, self._value])
        assert answer is not None and len(answer) == here.columns + 1 + other.columns
        is_found = answer[here.columns]
        # what was not read is asked for by whoever may: another kind of login may follow
        self._rows = [answer[here.columns + 1 :]] if is_found else []
        return here.build(answer[: here.columns]) if is_found else None


_expected: ContextVar[_Expected | None] = ContextVar("row that is read ahead", default=None)


@cache
def _joined(one: Prepared[Any], other: Prepared[Any]) -> str:
    """Both as one statement that always answers: the columns of `one`, whether it was found, the columns of `other`.

    Where `one` is not found, `other` is not read, and waits for no lock: `one` may be a login with a made-up token.
    """
    found = (
        f"LEFT JOIN (SELECT found.*, true AS is_found FROM ({'$1'.join(one._made.parts)}) found) one ON true"
    )
    along = f"LEFT JOIN LATERAL (SELECT * FROM ({'$2'.join(other._made.parts)}) along WHERE one.is_found) other ON true"
    return f"SELECT one.*, other.* FROM (SELECT) always {found} {along}"


def _is_askable(value: Any) -> bool:
    return not isinstance(value, int) or -_BIGGEST <= value < _BIGGEST


def _answer(sql: str, parameters: list[Any]) -> Values | None:
    with cursor(psycopg.RawCursor) as asks:
        asks.execute(sql, parameters)
        answer: Values | None = asks.fetchone()
    return answer


def _parts(sql: str, parameters: tuple[Any, ...], placeholder: Any) -> list[str]:
    """The SQL with its parameters written into it, cut at each place of the placeholder."""
    connection.ensure_connection()
    written = [
        _CUT if each == placeholder else psycopg.sql.quote(each, connection.connection) for each in parameters
    ]
    return (sql % tuple(written)).split(_CUT)


_CUT = "\0"  # which no SQL has


@contextmanager
def cursor(kind: type[psycopg.Cursor[Any]] = psycopg.Cursor) -> Iterator[CursorWrapper]:
    """A cursor that sends parameters apart from the SQL, so that PostgreSQL keeps the plan of what comes again.

    Django's own writes them into the SQL, bytes as hex, and PostgreSQL plans each one again. With psycopg.RawCursor the
    SQL has PostgreSQL's own $1: else psycopg looks through one of more than 4,096 characters each time.
    """
    connection.ensure_connection()
    driver: Any = connection.connection
    driver.prepare_threshold = settings.PREPARE_AFTER or None
    try:
        with connection.wrap_database_errors, connection.execute_wrapper(_planned_again), kind(driver) as own:
            yield connection._prepare_cursor(
                own
            )  # what Django's `cursor` does: tests count its statements, too
    finally:
        driver.prepare_threshold = None


def _planned_again(execute: Callable[..., Any], sql: Any, *how: Any) -> Any:
    """Execute the statement, if need be without its kept plan: a plan does not outlive a change of a column's type.

    Within a transaction, which the error has ended, whoever tries it again succeeds: psycopg forgets its plans then.
    """
    try:
        return execute(sql, *how)
    except NotSupportedError:
        if connection.in_atomic_block:
            raise
        driver: Any = connection.connection
        driver.execute("DEALLOCATE ALL")  # which makes psycopg forget them, too
        return execute(sql, *how)
