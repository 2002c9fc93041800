"""How values leave: RFC 3339 times with Z, 64-bit numbers as text, pages with their bounds (features.md 11.1)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, TypeVar, overload

import numpy as np
from django.db.models import F, Model, QuerySet
from django.db.models.expressions import OrderBy
from rest_framework import serializers

from metrics.packing import Integers
from webui.api.answers import Pagination

DEFAULT_LIMIT = 100
MAX_LIMIT = 10_000

Row = TypeVar("Row", bound=Model)
Item = TypeVar("Item")


@overload
def time(value: datetime) -> str: ...
@overload
def time(value: None) -> None: ...
@overload
def time(value: datetime | None) -> str | None: ...


def time(value: datetime | None) -> str | None:
    """`2026-01-31T12:00:00.123456Z`"""
    if value is None:
        return None
    if value.tzinfo is not UTC:
        value = value.astimezone(UTC)
    return value.isoformat(timespec="microseconds").removesuffix("+00:00") + "Z"


def times(microseconds: Integers) -> list[str]:
    """The same of many, from microseconds since the epoch."""
    texts: list[str] = np.datetime_as_string(microseconds.astype("datetime64[us]")).tolist()
    return [f"{text}Z" for text in texts]


def without_none(row: dict[str, Any]) -> dict[str, Any]:
    """Optional fields are absent rather than null."""
    return {name: value for name, value in row.items() if value is not None}


class PageQuery(serializers.Serializer[Any]):
    """`limit` 0 means 100, -1 everything, -2 the pagination alone."""

    offset = serializers.IntegerField(required=False, default=0, min_value=0)
    limit = serializers.IntegerField(required=False, default=0, min_value=-2)
    orderBy = serializers.ChoiceField(
        required=False,
        default="ORDER_BY_UNSPECIFIED",
        choices=["ORDER_BY_UNSPECIFIED", "ORDER_BY_ASC", "ORDER_BY_DESC"],
    )


def bounds(query: dict[str, Any], total: int) -> tuple[int, int]:
    """First and one-past-last index of the page."""
    start = min(query["offset"], total)
    return start, min(start + rows_asked(query), total)


def rows_asked(query: dict[str, Any]) -> int:
    """How many rows the page may have."""
    limit = query["limit"] or DEFAULT_LIMIT
    return {-1: MAX_LIMIT, -2: 0}.get(limit, min(limit, MAX_LIMIT))


def pagination(query: dict[str, Any], total: int) -> Pagination:
    start, end = bounds(query, total)
    return {
        "offset": query["offset"],
        "limit": query["limit"] or DEFAULT_LIMIT,
        "startIndex": start,
        "endIndex": end,
        "total": total,
    }


def page(
    rows: QuerySet[Row] | Sequence[Item],
    query: dict[str, Any],
    name: str,
    encode: Callable[[Any], Mapping[str, Any]],
    total: int | None = None,
) -> dict[str, Any]:
    """`{name: [...], "pagination": {...}}` of one page of the rows. `total`: how many there are, if known."""
    if total is None:
        total = rows.count() if isinstance(rows, QuerySet) else len(rows)
    start, end = bounds(query, total)
    chosen: Iterable[Any] = rows[start:end] if end > start else []
    return {name: [encode(row) for row in chosen], "pagination": pagination(query, total)}


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


def sort_field(fields: dict[str, str]) -> serializers.ChoiceField:
    return serializers.ChoiceField(required=False, choices=["SORT_BY_UNSPECIFIED", *fields])
