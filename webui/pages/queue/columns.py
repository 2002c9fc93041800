"""Columns of the departures board: what each says of a line, and by what it sorts a queue.

A row is one line high: what does not fit is cut, and the whole reason appears over the row under the pointer or the
focus. Cells are assembled as text and not by templates: a page has forty lines, and each has some sixty values.
"""

from __future__ import annotations

from typing import NamedTuple

from django.template.defaultfilters import floatformat
from django.utils.html import escape
from django.utils.safestring import SafeString

from hosts.models import ResourcePool
from scheduling import policies
from scheduling.policy import Policy
from shown.queue import times
from shown.queue.board import BoardRow
from shown.queue.listing import PLACE, SORTS
from webui.pages.table_columns import Column
from webui.templatetags.console import code_words, percent, state_lamp

#: In a row that is kept, these are placeholders for the age of the job and for the address that shows each of the jobs
#: that the row stands for. PostgreSQL's text cannot contain NUL.
AGE, UNFOLDED = SafeString("\0age"), SafeString("\0unfolded")
_LOCK = (
    '<svg width="9" height="11" viewBox="0 0 9 11" aria-hidden="true"><path d="M2 5V3.2a2.5 2.5 0 0 1 5 0V5" '
    'fill="none" stroke="currentColor" stroke-width="1.4"/><rect x=".5" y="5" width="8" height="5.5" rx="1" '
    'fill="currentColor"/></svg>'
)
_BACKFILLED = (
    ' <span class="hint" title="Started ahead of its turn on reserved slots; stopped when that lets '
    'the job ahead of it start">backfilled</span>'
)


class SeenRow(NamedTuple):
    """A row as one person sees it."""

    row: BoardRow
    is_mine: bool


def _of(policy: Policy) -> list[Column[SeenRow]]:
    """`by` returns the key of the job at a place of the queue; equal jobs keep their order."""
    return [
        *([Column(PLACE, "#", _place, lambda queue: int, True, css="mono place")] if policy.order else []),
        Column("state", "State", _state, SORTS["state"], css="state-cell"),
        Column("name", "Job", _name, SORTS["name"], css="wide", label=""),
        Column("slots", "Slots", _slots, SORTS["slots"], css="slots-cell"),
        *(_KNOBS[knob] for knob in policy.knobs if knob in _KNOBS),
        *([_SHARE] if policy.has_shares else []),
        Column("user", "User", _owner, SORTS["user"], css="user"),
        Column("submitted", "Submitted", lambda line: AGE, SORTS["submitted"], css="submitted"),
        Column("start", "Start", _start, css=_start_css),
        Column("why", "Why", _why, css=lambda line: f"why {_tone(line.row) or 'muted'}", label=""),
    ]  # fmt: skip


def of(pool: ResourcePool) -> dict[str, Column[SeenRow]]:
    """The columns by key. They depend on the pool's policy: on what orders its queue, its knobs and its shares."""
    return _COLUMNS[pool.scheduler]


def _tone(row: BoardRow) -> str:
    return "failed-text" if row.never else ""


def _place(line: SeenRow) -> SafeString:
    lock = ""
    if line.row.locked:
        lock = (
            f'<span class="lock" title="Not preemptible">{_LOCK}<span class="visually-hidden">not preemptible</span>'
            "</span> "
        )
    return SafeString(f"{lock}{line.row.place}")


def _state(line: SeenRow) -> SafeString:
    row = line.row
    said = str(state_lamp(row.state))
    if row.progress and row.state == "RUNNING":
        said += f' <span class="hint">{percent(row.progress)}</span>'
    if row.backfilled:
        said += _BACKFILLED
    if row.stops_for:
        said += f' <span class="hint">for <span class="mono">{escape(row.stops_for)}</span></span>'
    if row.locked and row.place is None:  # with places, a lock beside its place says so
        said += ' <span class="hint">not preemptible</span>'
    return SafeString(f"<span>{said}</span>")


def _name(line: SeenRow) -> SafeString:
    row = line.row
    kind = {"EXPERIMENT": "an experiment", "ARRAY": "an array"}.get(row.kind, "a command")
    more = ""
    if row.alike > 1:
        more = (
            f' <a class="fold" href="{UNFOLDED}" aria-label="{row.alike} similar jobs, show each">'
            f"&times;{row.alike}</a>"
        )
    elif row.elements:
        more = (
            f' <a class="fold" href="{escape(row.link)}" aria-label="{row.elements} elements, show each">'
            f"&times;{row.elements}</a>"
        )
    elif row.tasks > 1:
        trials = f"{row.tasks_running} of {row.tasks} trials" if row.tasks_running else f"{row.tasks} trials"
        more = f' <span class="hint trials">{trials}</span>'
    name = escape(row.name)
    return SafeString(
        f'<span class="line"><a class="name" id="name-{row.id}" href="{escape(row.link)}" title="{name}">{name}</a> '
        f'<a class="hint mono nowrap label" href="/jobs/job/{row.id}" title="Job {str(row.id)[:8]}, {kind}">'
        f"{escape(row.label)}</a>{more}</span>"
    )


def _slots(line: SeenRow) -> SafeString:
    row = line.row
    if not row.needed:
        return SafeString('<span><span class="hint">no slots</span></span>')
    lamps = "".join(f'<span class="slot {lamp}"></span>' for lamp in row.lamps)
    drawn = (
        lamps or f'<span class="bar"><span class="{row.state}" style="width: {row.filled}%"></span></span>'
    )
    more = ""
    if row.coming_free:
        more = f'<span class="visually-hidden">, {row.coming_free} coming free</span>'
    if row.idle:
        more += f' <a class="hint" href="{escape(row.idle_at)}">{row.idle} idle</a>'
    coming = f", {row.coming_free} coming free" if row.coming_free else ""
    return SafeString(
        f'<span class="line"><span class="slots" title="{row.held} held of {row.needed} needed{coming}">{drawn}'
        f'<span class="count">{row.held}/{row.needed}</span></span>{more}</span>'
    )


def _share(line: SeenRow) -> SafeString:
    return SafeString("&ndash;" if line.row.share is None else f"{line.row.held}/{line.row.share}")


def _owner(line: SeenRow) -> SafeString:
    owner = line.row.owner
    return SafeString(f'<span title="{escape(owner)}">{"you" if line.is_mine else escape(owner)}</span>')


def _start(line: SeenRow) -> SafeString:
    row, title = line.row, escape(line.row.start_title)
    if row.start == times.NOT_KNOWN:
        return SafeString(f'<a href="/jobs/job/{row.id}" title="{title}">{times.NOT_KNOWN}</a>')
    return SafeString(f'<span title="{title}">{escape(times.headed(row.start))}</span>')


def _start_css(line: SeenRow) -> str:
    return "start muted" if line.row.start == times.NOT_KNOWN else f"start {_tone(line.row)}".strip()


def _why(line: SeenRow) -> SafeString:
    row, why = line.row, code_words(line.row.why)
    if row.state == "QUEUED":
        return SafeString(f'<a class="cut" href="/jobs/job/{row.id}">{why}</a>')
    return SafeString(f'<span class="cut">{why}</span>')


_SHARE: Column[SeenRow] = Column(
    "share", "Share held / entitled", _share, css="number mono nowrap", label="Share"
)
#: knob of a policy -> the column that shows it
_KNOBS: dict[str, Column[SeenRow]] = {
    "priority": Column(
        "priority", "Priority", lambda line: str(line.row.priority), SORTS["priority"], True, css="mono"
    ),
    "weight": Column(
        "priority",
        "Weight",
        lambda line: floatformat(line.row.weight, "-2"),
        SORTS["weight"],
        True,
        css="mono",
    ),
}
_COLUMNS = {name: {each.key: each for each in _of(policies.of(name))} for name, _ in policies.CHOICES}
