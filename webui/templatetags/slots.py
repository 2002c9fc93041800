"""Slots drawn as lamps. Built here and not in a template: a page may show thousands."""

from __future__ import annotations

from django import template
from django.utils.html import escape, format_html
from django.utils.safestring import SafeString, mark_safe

from shown.hosts.rows import MOST_LAMPS, STATES, HostRow, SlotRow
from shown.pools import PoolRow

register = template.Library()


@register.simple_tag
def small_lamps(row: HostRow) -> SafeString:
    """Lamps without words: the cell or the row around them says it. Above 32 a bar."""
    if len(row.slots) > MOST_LAMPS:
        return _bar(row)
    drawn = "".join(f'<span class="slot {_CLASSES[each.state]}"></span>' for each in row.slots)
    return mark_safe(f'<span class="slots" aria-hidden="true">{drawn}</span>')


def _bar(row: HostRow) -> SafeString:
    share = round(100 * row.held / len(row.slots))
    return format_html('<span class="bar" aria-hidden="true"><span style="width: {}%"></span></span>', share)


#: of components.css, by state
_CLASSES = {state: state for state in STATES} | {"running": "held"}


@register.simple_tag
def square_lamps(row: HostRow) -> SafeString:
    """A square per slot with its number; one that is held leads to its holder. Each says itself when pointed at."""
    drawn = "".join(_square(each) for each in row.slots)
    return mark_safe(f'<span class="squares">{drawn}</span>')


def _square(row: SlotRow) -> str:
    said = escape(row.text[:1].upper() + row.text[1:])
    kind = f"square {row.state}"
    inner = f'{row.slot.index}<span class="tip">{said}</span>'
    if row.holder:
        return f'<a class="{kind}" href="{escape(row.holder.href)}" aria-label="{said}" title="{said}">{inner}</a>'
    return f'<span class="{kind}"{_focus(row)} role="img" aria-label="{said}" title="{said}">{inner}</span>'


def _focus(row: SlotRow) -> str:
    """The keyboard stops where there is something to read: not at each free slot."""
    return "" if row.state == "free" else ' tabindex="0"'


@register.inclusion_tag("fragments/allocation_bar.html")
def allocation_bar(row: PoolRow) -> dict[str, object]:
    """The slots of a pool by state, as a bar and in words."""
    return {"slots": row.slots, "parts": row.parts}
