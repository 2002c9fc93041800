"""Slots drawn as lamps, and who holds them. Lamps are not drawn by a template: a page may show thousands."""

from __future__ import annotations

from typing import Any

from django import template
from django.utils.html import escape, format_html
from django.utils.safestring import SafeString, mark_safe

from accounts.models import User
from hosts.models import ResourcePool
from jobs import shares
from shown import pools
from shown.hosts.rows import MOST_LAMPS, STATES, HostRow, SlotRow
from shown.pools import PoolRow
from shown.queue.standing import Queue

register = template.Library()
#: jobs in the table of a pool; the others wait
MOST_JOBS = 50
Share = shares.OfUser | shares.OfJob


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


@register.inclusion_tag("fragments/pool_shares.html", takes_context=True)
def pool_shares(context: dict[str, Any], pool: ResourcePool, slots: int) -> dict[str, Any]:
    """The users of the pool with what they hold of its `slots`, want and are entitled to, and the jobs below."""
    entitled = pools.entitled(pool)
    total, jobs = shares.by_job(pool, entitled, 0, MOST_JOBS)
    return {
        "request": context["request"],
        "pool": pool,
        "fair": entitled is not None,
        "users": [_line(each, slots) for each in shares.by_user(pool, entitled)],
        "jobs": [_line(each, slots) for each in jobs],
        "more": total - len(jobs),
    }


def _line(each: Share, slots: int) -> tuple[Share, int]:
    """Who holds so much, and the percentage of the pool that this is."""
    return each, round(100 * each.held / slots) if slots else 0


@register.simple_tag
def your_share(pool: ResourcePool, queue: Queue, user: User, slots: int) -> str:
    """`You hold 6 of 8 slots; your fair share is 4.`; nothing for who neither holds nor wants any."""
    waiting = sum(queue.waiting[place] for place in queue.places_of.get(user.pk, ()))
    mine = shares.of_user(pool, user, pools.entitled(pool), waiting)
    if not (mine.held or mine.waiting or mine.entitled):
        return ""
    waits = f"wait for {mine.waiting:,} more" if mine.waiting else ""
    held = f"You hold {mine.held:,} of {slots:,} slots"
    if mine.entitled is None:
        return f"{held} and {waits}." if waits else f"{held}."
    return f"{held}; your fair share is {mine.entitled:g}{f', and you {waits}' if waits else ''}."
