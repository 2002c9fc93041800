"""Slot-hours as people read them."""

from __future__ import annotations

from django import template

register = template.Library()


@register.filter
def hours(value: float) -> str:
    """`1,234.5`, `12.3`, `4`, `0.42`, `< 0.01`: hundredths are what a slot's use is compared by."""
    if value >= 10:
        return f"{value:,.1f}"
    return "< 0.01" if 0 < value < 0.01 else f"{round(value, 2):.2g}"
