"""A row of the departures board. Built here and not in a template: a page has forty, and each has some sixty values."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from urllib.parse import quote

from django import template
from django.template.defaultfilters import floatformat
from django.utils.html import escape
from django.utils.safestring import SafeString, mark_safe

from webui.pages.queue_rows import Row
from webui.templatetags.console import ago, code_words, percent, query, state_lamp

register = template.Library()

_LOCK = (
    '<svg width="9" height="11" viewBox="0 0 9 11" aria-hidden="true"><path d="M2 5V3.2a2.5 2.5 0 0 1 5 0V5" '
    'fill="none" stroke="currentColor" stroke-width="1.4"/><rect x=".5" y="5" width="8" height="5.5" rx="1" '
    'fill="currentColor"/></svg>'
)
_BACKFILLED = (
    '<br><span class="hint" title="Started on sufferance ahead of its turn; stopped when that completes the one '
    'before it">backfilled</span>'
)


@register.simple_tag(takes_context=True)
def queue_row(context: dict[str, Any], row: Row, version: str) -> SafeString:
    """The `<tr>` of one job, or of the first of several alike, with what scripts read of it."""
    request, policy = context["request"], context["pool"].policy
    mine = row.owner_id == request.user.pk
    return mark_safe(
        _head(row, version, mine)
        + _pick(row)
        + (_place(row) if policy.order else "")
        + _state(row, lock=not policy.order)
        + _name(row, context)
        + _slots(row)
        + "".join(_KNOBS[knob](row) for knob in policy.knobs if knob in _KNOBS)
        + (_share(row) if policy.has_shares else "")
        + _owner(row, mine)
        + f'<td class="nowrap" data-label="Submitted">{ago(row.submitted_at)}</td>'
        + _start(row)
        + _why(row)
        + _actions(row, request.path)
        + "</tr>"
    )


def _head(row: Row, version: str, mine: bool) -> str:
    place = "" if row.place is None else f' data-place="{row.place}"'
    which = f' class="alike" data-alike="{row.alike}"' if row.alike > 1 else f' data-job="{row.id}"'
    return (
        f'<tr id="{row.key}"{which} data-version="{version}"{place} data-kind="{row.kind}" data-state="{row.state}" '
        f'data-priority="{row.priority}" data-name="{escape(row.name)}" data-entity="{escape(row.entity_id)}" '
        f'data-owner="{escape(row.owner)}"{" data-mine" if mine else ""} tabindex="-1">\n'
    )


def _pick(row: Row) -> str:
    if row.alike > 1:
        return '<td class="pick"></td>\n'
    return (
        f'<td class="pick"><input type="checkbox" name="job" value="{row.id}" form="bulk" '
        f'aria-labelledby="select-head name-{row.id}"></td>\n'
    )


def _place(row: Row) -> str:
    lock = ""
    if row.locked:
        lock = (
            f'<span class="lock" title="Not preemptible">{_LOCK}<span class="visually-hidden">not preemptible</span>'
            "</span> "
        )
    return f'<td class="number mono place" data-label="#">{lock}{row.place}</td>\n'


def _state(row: Row, lock: bool) -> str:
    said = str(state_lamp(row.state))
    if row.progress and row.state == "RUNNING":
        said += f' <span class="hint">{percent(row.progress)}</span>'
    if row.backfilled:
        said += _BACKFILLED
    if row.stops_for:
        said += f'<br><span class="hint">for <span class="mono">{escape(row.stops_for)}</span></span>'
    if row.locked and lock:
        said += '<br><span class="hint">not preemptible</span>'
    return f'<td class="state-cell" data-label="State"><span>{said}</span></td>\n'


def _name(row: Row, context: dict[str, Any]) -> str:
    kind = "an experiment" if row.kind == "EXPERIMENT" else "a command"
    more = ""
    if row.alike > 1:
        unfolded = escape(query(context, like=row.id, show="all", page="", sort=""))
        more = f' <a class="fold" href="{unfolded}" aria-label="{row.alike} alike, show each">&times;{row.alike}</a>'
    elif row.tasks > 1:
        trials = (
            f"{row.tasks_running} of {row.tasks} trials run" if row.tasks_running else f"{row.tasks} trials"
        )
        more = f'<br><span class="hint">{trials}</span>'
    return (
        f'<td class="wide"><a class="name" id="name-{row.id}" href="{escape(row.link)}">{escape(row.name)}</a> '
        f'<a class="hint mono nowrap label" href="/jobs/job/{row.id}" title="Job {str(row.id)[:8]}, {kind}">'
        f"{escape(row.label)}</a>{more}</td>\n"
    )


def _slots(row: Row) -> str:
    if not row.needed:
        return '<td data-label="Slots"><span><span class="hint">no slots</span></span></td>\n'
    lamps = "".join(f'<span class="slot {lamp}"></span>' for lamp in row.lamps)
    drawn = (
        lamps or f'<span class="bar"><span class="{row.state}" style="width: {row.filled}%"></span></span>'
    )
    more = ""
    if row.coming_free:
        more = f'<br><span class="hint">{row.coming_free} coming free</span>'
    elif not lamps and row.hosts:
        more = f'<br><span class="hint">on {len(row.hosts)} host{"" if len(row.hosts) == 1 else "s"}</span>'
    if row.idle:
        more += f'<br><a class="hint" href="{escape(row.idle_at)}">{row.idle} idle</a>'
    return (
        f'<td data-label="Slots"><span><span class="slots" title="{row.held} held of {row.needed} needed">{drawn}'
        f'<span class="count">{row.held}/{row.needed}</span></span>{more}</span></td>\n'
    )


def _share(row: Row) -> str:
    share = "&ndash;" if row.share is None else f"{row.held}/{row.share}"
    return f'<td class="number mono nowrap" data-label="Share">{share}</td>\n'


#: knob of a policy -> the cell that shows it
_KNOBS: dict[str, Callable[[Row], str]] = {
    "priority": lambda row: f'<td class="number mono" data-label="Priority">{row.priority}</td>',
    "weight": lambda row: f'<td class="number mono" data-label="Weight">{floatformat(row.weight, "-2")}</td>',
}


def _owner(row: Row, mine: bool) -> str:
    owner = escape(row.owner)
    return f'<td data-label="User">{f"""<span title="{owner}">you</span>""" if mine else owner}</td>'


def _start(row: Row) -> str:
    title = escape(row.start_title)
    if row.start == "not known":
        return (
            f'<td class="start muted" data-label="Start"><a href="/jobs/job/{row.id}" title="{title}">not known</a>'
            "</td>"
        )
    tone = " failed-text" if row.never else ""
    return f'<td class="start{tone}" data-label="Start"><span title="{title}">{escape(row.start)}</span></td>'


def _why(row: Row) -> str:
    link = ""
    if row.state == "QUEUED":
        link = f' <a class="why-link" href="/jobs/job/{row.id}" aria-label="Why {escape(row.name)} waits">why?</a>'
    return f'<td class="why {"failed-text" if row.never else "muted"}">{code_words(row.why)}{link}</td>\n'


def _actions(row: Row, path: str) -> str:
    if row.alike > 1:
        return '<td class="actions"></td>'
    return (
        f'<td class="actions"><a class="menu" href="/jobs/menu/{row.id}?back={quote(path)}" data-menu="{row.id}" '
        f'aria-haspopup="menu" aria-label="Actions for {escape(row.name)}, {escape(row.label)}">⋯</a></td>'
    )
