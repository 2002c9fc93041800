"""The table of a trial's metrics: searched, grouped by prefix, pinned, and cut into pages. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from django.core.paginator import Page, Paginator

from metrics.charts import ordered, stem
from metrics.values import SUMMARY_GROUPS

#: Charts with their rows on one page of the table, and how many charts stand there before somebody ticks some.
PER_PAGE = 100
UNASKED_CHARTS = 40
_GROUPS = {name: group for group, name in SUMMARY_GROUPS.items()}
_SEPARATORS = "/."


@dataclass(frozen=True)
class Chosen:
    """Which metrics are listed and which of them have charts; names of charts are stems (metrics.charts.stem)."""

    search: str
    prefix: str
    ticked: list[str]
    pins: list[str]
    expanded: str
    page: str


@dataclass(frozen=True)
class MetricRow:
    """One metric of a group; numbers as reported (NaN by name), None where there are none."""

    group: str
    name: str
    is_number: bool
    last: object
    least: object
    most: object
    step: int | None


@dataclass(frozen=True)
class MetricChart:
    """What shares a chart: training and validation of one stem."""

    name: str
    rows: list[MetricRow]
    is_pinned: bool
    is_ticked: bool

    @property
    def is_drawable(self) -> bool:
        return any(row.is_number for row in self.rows)


@dataclass(frozen=True)
class Prefix:
    name: str
    charts: int


@dataclass(frozen=True)
class MetricTable:
    """A page of the table. `drawn` are the charts beside it, `found` counts those that the search and prefix leave."""

    charts: list[MetricChart]
    drawn: list[MetricChart]
    prefixes: list[Prefix]
    found: int
    total: int
    page: Page[MetricChart]


def table(summary: Mapping[str, Any], chosen: Chosen, searcher_metric: str) -> MetricTable:
    """`summary` is the trial's: group -> metric -> {last, min, max, ...}. Pins come first, then the searcher's."""
    first = stem(searcher_metric)
    every = _charts(summary, chosen)
    every.sort(key=lambda chart: (not chart.is_pinned, chart.name != first, chart.name.lower()))
    needle = chosen.search.lower()
    found = [
        chart
        for chart in every
        if any(_prefix(row.name) == chosen.prefix or not chosen.prefix for row in chart.rows)
        and (not needle or any(needle in f"{row.group} {row.name}".lower() for row in chart.rows))
    ]
    page = Paginator(found, PER_PAGE).get_page(chosen.page)
    shown = list(page.object_list)
    return MetricTable(shown, _drawn(every, shown, chosen), _prefixes(every), len(found), len(every), page)


def _drawn(every: list[MetricChart], shown: list[MetricChart], chosen: Chosen) -> list[MetricChart]:
    """Those that were ticked or pinned, wherever they stand; without a tick the first of the page."""
    ticked = [chart for chart in every if chart.is_ticked or chart.is_pinned]
    some = ticked if chosen.ticked else shown
    return [chart for chart in some if chart.is_drawable][:UNASKED_CHARTS]


def _charts(summary: Mapping[str, Any], chosen: Chosen) -> list[MetricChart]:
    rows: dict[str, list[MetricRow]] = {}
    for row in _rows(summary):
        rows.setdefault(stem(row.name), []).append(row)
    pins, ticked = set(chosen.pins), set(chosen.ticked)
    return [MetricChart(name, some, name in pins, name in ticked) for name, some in rows.items()]


def _rows(summary: Mapping[str, Any]) -> Iterator[MetricRow]:
    named = {_GROUPS.get(group, group): metrics for group, metrics in summary.items()}
    for group in ordered(named):
        for name, entry in sorted(named[group].items()):
            yield MetricRow(
                group, name, entry.get("type") == "number", entry.get("last"), entry.get("min"), entry.get("max"),
                entry.get("step"),
            )  # fmt: skip


def _prefixes(charts: list[MetricChart]) -> list[Prefix]:
    """Prefixes that two charts or more have, by name."""
    counts: dict[str, set[str]] = {}
    for chart in charts:
        for row in chart.rows:
            if prefix := _prefix(row.name):
                counts.setdefault(prefix, set()).add(chart.name)
    return [Prefix(name, len(counts[name])) for name in sorted(counts) if len(counts[name]) > 1]


def _prefix(name: str) -> str:
    """`train/` of `train/loss`, `layer1.` of `layer1.weight.norm`, nothing of `loss`."""
    ends = [name.find(separator) for separator in _SEPARATORS]
    end = min((at for at in ends if at > 0), default=-1)
    return name[: end + 1] if end > 0 else ""
