"""Slot-hours as people read them."""

from __future__ import annotations

from django import template

register = template.Library()


@register.filter
def hours(value: float) -> str:
    """`1,234.5`, `12.3`, `0.042`: the digits that people compare."""
    return f"{value:,.1f}" if value >= 10 else f"{value:.2g}"
