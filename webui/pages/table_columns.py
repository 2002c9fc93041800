"""What tables with columns of one's choice share: a column, the order that an address asks for, and the heads."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Generic, NamedTuple, TypeVar

from django.db.models import F
from django.utils.html import conditional_escape, escape
from django.utils.safestring import SafeString

R = TypeVar("R")


class Cell(NamedTuple):
    """`css`: classes of the cell; `label`: its word where rows are cards."""

    html: str | SafeString
    css: str
    label: str

    @property
    def td(self) -> SafeString:
        return SafeString(f"{_opened(self.css, self.label)}{conditional_escape(self.html)}</td>")


@lru_cache(1000)
def _opened(css: str, label: str) -> str:
    attributes = (
        f' {name}="{escape(value)}"' for name, value in (("class", css), ("data-label", label)) if value
    )
    return f"<td{''.join(attributes)}>"


class Column(NamedTuple, Generic[R]):
    """`by` sorts it, nothing where it does not; `is_downwards`: what people look for stands at the lower end.

    `css`: classes of its cells, which a row may decide; `label`: its word where rows are cards, if not the title.
    """

    key: str
    title: str
    said: Callable[[R], str | SafeString]
    by: Any = None
    is_number: bool = False
    is_downwards: bool = False
    css: str | Callable[[R], str] = "nowrap"
    label: str | None = None

    def cell(self, row: R) -> Cell:
        css = self.css(row) if callable(self.css) else self.css
        label = self.title if self.label is None else self.label
        return Cell(self.said(row), f"number {css}".strip() if self.is_number else css, label)


class Head(NamedTuple):
    """A column's head. `order`: `ascending`, `descending` or nothing, drawn as `arrow`; `next`: the click's sort."""

    column: Column[Any]
    order: str = ""
    next: str = ""
    arrow: str = ""


@dataclass(frozen=True)
class Sort:
    """The order of a table's rows; those without a value stand last, either way.

    `plain`: the column whose order is the table's own, which no arrow needs to say.
    """

    key: str
    by: Any
    is_down: bool
    plain: str = ""

    @classmethod
    def read(cls, word: str, find: Callable[[str], Column[R] | None], usual: str) -> Sort:
        """`word`: a column's key, `-` before it for downwards; one by which nothing is sorted means `usual`."""
        column = find(word.removeprefix("-"))
        if column is not None and column.by is not None:
            return cls(column.key, column.by, word.startswith("-"))
        return cls(usual.removeprefix("-"), F("pk"), usual.startswith("-"))

    @property
    def expression(self) -> Any:
        # each row has an id, and an index on it is of use only while no place for its absence is asked for
        last = None if F("pk") == self.by else True
        return self.by.desc(nulls_last=last) if self.is_down else self.by.asc(nulls_last=last)

    def head(self, column: Column[R]) -> Head:
        if column.by is None:
            return Head(column)
        is_current = column.key == self.key
        downwards = not self.is_down if is_current else column.is_downwards
        order = ("descending" if self.is_down else "ascending") if is_current else ""
        upcoming = f"{'-' if downwards else ''}{column.key}"
        arrow = {"ascending": "" if self.key == self.plain else " ↑", "descending": " ↓"}.get(order, "")
        return Head(column, order, upcoming, arrow)
