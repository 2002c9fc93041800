"""Slots drawn as lamps. Built here and not in a template: a page may show thousands."""

from __future__ import annotations

from django import template
from django.utils.html import escape, format_html
from django.utils.safestring import SafeString, mark_safe

from shown.hosts.occupancy import MOST_LAMPS, Lamp, Seen, Usage

register = template.Library()


@register.simple_tag
def small_lamps(seen: Seen) -> SafeString:
    """Lamps without words: the cell or the row around them says it. Above 32 a bar."""
    if len(seen.lamps) > MOST_LAMPS:
        return _bar(seen)
    drawn = "".join(f'<span class="slot {_CLASSES[lamp.state]}"></span>' for lamp in seen.lamps)
    return mark_safe(f'<span class="slots" aria-hidden="true">{drawn}</span>')


def _bar(seen: Seen) -> SafeString:
    share = round(100 * seen.held / len(seen.lamps))
    return format_html('<span class="bar" aria-hidden="true"><span style="width: {}%"></span></span>', share)


_CLASSES = {
    "running": "held",
    "preparing": "preparing",
    "free": "free",
    "cleaning": "cleaning",
    "outside": "outside",
    "off": "off",
}


@register.simple_tag
def square_lamps(seen: Seen) -> SafeString:
    """A square per slot with its number; one that is held leads to its holder. Each says itself when pointed at."""
    drawn = "".join(_square(lamp) for lamp in seen.lamps)
    return mark_safe(f'<span class="squares">{drawn}</span>')


def _square(lamp: Lamp) -> str:
    said = escape(lamp.text[:1].upper() + lamp.text[1:])
    kind = f"square {lamp.state}"
    inner = f'{lamp.slot.index}<span class="tip">{said}</span>'
    if lamp.holder:
        return f'<a class="{kind}" href="{escape(lamp.holder.href)}" aria-label="{said}" title="{said}">{inner}</a>'
    return f'<span class="{kind}"{_focus(lamp)} role="img" aria-label="{said}" title="{said}">{inner}</span>'


def _focus(lamp: Lamp) -> str:
    """The keyboard stops where there is something to read: not at each free slot."""
    return "" if lamp.state == "free" else ' tabindex="0"'


@register.inclusion_tag("fragments/allocation_bar.html")
def allocation_bar(usage: Usage) -> dict[str, object]:
    """The slots of a pool by state, as a bar and in words."""
    return {"usage": usage, "parts": usage.parts}
