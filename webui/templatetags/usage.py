"""Slot-hours, hours and lengths of training as people read them."""

from __future__ import annotations

from django import template

from experiments import search_preview
from trainmaster.cli import preview_search
from trainmaster.quantities import duration

register = template.Library()
register.filter(search_preview.in_unit)


@register.simple_tag
def search_counted() -> dict[str, str]:
    """How the units of a search are counted, in the words of `preview-search`."""
    return {
        "simulated": preview_search.SIMULATED,
        "if_kept": preview_search.IF_KEPT,
        "why_otherwise": preview_search.WHY_OTHERWISE,
    }


@register.filter
def hours_spelled(value: float) -> str:
    """Hours on the clock with the unit that they are read in: `4 h`, `5 min`, `20 s`."""
    return duration(value * 3600)


@register.filter
def slot_time(seconds: float) -> str:
    """`1,234.5 slot-hours`, `1 slot-hour`, `5 slot-minutes`, `20 slot-seconds`."""
    if seconds >= 3600:
        text, unit = hours(seconds / 3600), "slot-hour"
    elif seconds >= 60:
        text, unit = f"{seconds / 60:.0f}", "slot-minute"
    else:
        text, unit = "< 1" if 0 < seconds < 1 else f"{seconds:.0f}", "slot-second"
    return f"{text} {unit}" if text in {"1", "< 1"} else f"{text} {unit}s"


@register.filter
def others(count: int) -> str:
    """What a row of all others is called; it leads to the file that has each."""
    return f"{count:,} {'other' if count == 1 else 'others'}, in the CSV"


@register.filter
def part_of_100(percent: float) -> str:
    """`12 %`, `0.4 %`, `< 0.1 %`."""
    if percent >= 1:
        return f"{percent:.0f} %"
    return "< 0.1 %" if percent < 0.1 else f"{percent:.1f} %"


@register.filter
def whole_percent(share: float) -> str:
    return part_of_100(100 * share) if share else "0 %"


@register.filter
def unlocalized(value: float) -> str:
    """A number for CSS."""
    return f"{value:.4f}"


@register.filter
def hours(value: float) -> str:
    """`1,234.5`, `12.3`, `4`, `0.42`, `< 0.01`: hundredths are what a slot's use is compared by."""
    if value >= 10:
        return f"{value:,.1f}"
    return "< 0.01" if 0 < value < 0.01 else f"{round(value, 2):.2g}"
