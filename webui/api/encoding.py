"""How values leave: RFC 3339 times with Z, 64-bit numbers as text, pages with their bounds (features.md 11.1)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeVar

import numpy as np
from django.db.models import F, Model, QuerySet
from django.db.models.expressions import OrderBy
from rest_framework import serializers

from metrics.packing import Integers
from webui.api.answers import Answer, Pagination
from webui.api.protojson import EnumField, words

DEFAULT_LIMIT = 100
MAX_LIMIT = 10_000

Row = TypeVar("Row", bound=Model)
Item = TypeVar("Item")
Listed = TypeVar("Listed", bound=Answer)


def times(microseconds: Integers) -> list[str]:
    """Return many times as `time_text` has them, from microseconds since the epoch."""
    texts: list[str] = np.datetime_as_string(microseconds.astype("datetime64[us]")).tolist()
    return [f"{text}Z" for text in texts]


class PageQuery(serializers.Serializer[Any]):
    """`limit` 0 means 100, -1 everything, -2 the pagination alone."""

    offset = serializers.IntegerField(required=False, default=0, min_value=0)
    limit = serializers.IntegerField(required=False, default=0, min_value=-2)
    orderBy = EnumField("order", words("order"), required=False, default="ORDER_BY_UNSPECIFIED")


def rows_asked(query: dict[str, Any]) -> int:
    """How many rows the page may have."""
    limit = query["limit"] or DEFAULT_LIMIT
    return {-1: MAX_LIMIT, -2: 0}.get(limit, min(limit, MAX_LIMIT))


def pagination(query: dict[str, Any], total: int) -> Pagination:
    start = min(query["offset"], total)
    return Pagination(
        offset=query["offset"],
        limit=query["limit"] or DEFAULT_LIMIT,
        start_index=start,
        end_index=min(start + rows_asked(query), total),
        total=total,
    )


def page(
    answer: type[Listed],
    rows: QuerySet[Row] | Sequence[Item],
    query: dict[str, Any],
    encode: Callable[[Any], Any],
    total: int | None = None,
) -> Listed:
    """One page of the rows as the answer, with a list and a `pagination`. `total`: how many there are, if known."""
    (name,) = answer.model_fields.keys() - {"pagination"}
    chosen, shown = cut(rows, query, total)
    return answer(**{name: [encode(row) for row in chosen], "pagination": shown})


def cut(
    rows: QuerySet[Row] | Sequence[Item], query: dict[str, Any], total: int | None = None
) -> tuple[list[Any], Pagination]:
    """Return the rows of one page, and which of all rows they are."""
    if total is None:
        total = rows.count() if isinstance(rows, QuerySet) else len(rows)
    shown = pagination(query, total)
    start, end = shown.start_index, shown.end_index
    return list(rows[start:end]) if end > start else [], shown


def narrowed(rows: QuerySet[Row], query: dict[str, Any], **lookups: str) -> QuerySet[Row]:
    """The rows that fit the query, by the lookup of each of its names; null, 0 and what is empty ask for nothing."""
    asked = {lookup: query.get(name) for name, lookup in lookups.items()}
    return rows.filter(**{lookup: value for lookup, value in asked.items() if value or value is False})


def ordering(query: dict[str, Any], fields: dict[str, str], default: str, tie: str = "pk") -> list[OrderBy]:
    """Order by what `sortBy` names, empty values last, ties by `tie` in the same direction; `tie` is never empty."""
    descending = query["orderBy"] == "ORDER_BY_DESC"
    field = fields.get(query.get("sortBy") or "", default)
    names = dict.fromkeys([field, tie])
    # an index gives the order only if no place for empty values is asked for
    last = {name: True if name != tie else None for name in names}
    return [
        F(name).desc(nulls_last=last[name]) if descending else F(name).asc(nulls_last=last[name])
        for name in names
    ]


def list_of(child: serializers.Field[Any, Any, Any, Any], **options: Any) -> serializers.ListField:
    """A field that may be left out, and may be repeated in a query string."""
    return serializers.ListField(child=child, required=False, **options)


def sort_field(rows: str, fields: Iterable[str]) -> EnumField:
    """What a list of these rows can be sorted by."""
    return EnumField(f"sort of {rows}", ["SORT_BY_UNSPECIFIED", *fields], required=False)
