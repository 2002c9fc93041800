"""Tags of the job queue: rows of its board, and the bar of actions for the jobs that are selected."""

from __future__ import annotations

from typing import Any
from urllib.parse import quote

from django import template
from django.utils.html import escape
from django.utils.safestring import SafeString

from hosts.models import ResourcePool
from jobs import queue_edits
from shown import pools as shown_pools
from shown.queue.board import BoardRow
from shown.queue.edit_rights import why_no_bulk
from webui.pages.queue import columns as queue_columns
from webui.pages.queue.columns import SeenRow
from webui.templatetags.console import ago, query

register = template.Library()

#: rows that a process keeps as they are written, of some 3 kB each
KEPT_ROWS = 1000
_written: dict[tuple[object, ...], str] = {}


@register.simple_tag(takes_context=True)
def queue_rows(context: dict[str, Any], rows: list[BoardRow]) -> SafeString:
    """A `<tr>` for each of them."""
    return SafeString("".join(_row(context, row) for row in rows))


def _row(context: dict[str, Any], row: BoardRow) -> str:
    """One job, or the first of several alike, with what scripts read of it; empty if the browser has `seen` it so.

    The HTML is kept for all users who see the same row; the age and the link that unfolds it are filled in each time.
    """
    request, version = context["request"], row.version
    if version in context["seen"]:
        return f'<tr id="{row.key}" data-same="{version}"></tr>'
    line = SeenRow(row, row.owner_id == request.user.pk)
    seen_as = (row.key, version, line.is_mine, request.path, context["pool"].scheduler)
    if (written := _written.get(seen_as)) is None:
        if len(_written) >= KEPT_ROWS:
            _written.clear()
        written = _written[seen_as] = _write(context, line, version)
    if row.alike > 1:
        unfolded = query(context, like=row.id, show="all", page="", sort="")
        written = written.replace(queue_columns.UNFOLDED, escape(unfolded))
    return written.replace(queue_columns.AGE, ago(row.submitted_at))


def _write(context: dict[str, Any], line: SeenRow, version: str) -> str:
    row = line.row
    cells = "".join(column.cell(line).td for column in context["columns"])
    pick, actions = ("", "") if row.alike > 1 else (_pick(row), _actions(row, context["request"].path))
    head = _head(row, version, line.is_mine)
    return f'{head}<td class="pick">{pick}</td>\n{cells}<td class="actions">{actions}</td></tr>'


def _head(row: BoardRow, version: str, mine: bool) -> str:
    place = "" if row.place is None else f' data-place="{row.place}"'
    which = f' class="alike" data-alike="{row.alike}"' if row.alike > 1 else f' data-job="{row.id}"'
    return (
        f'<tr id="{row.key}"{which} data-version="{version}"{place} data-kind="{row.kind}" data-state="{row.state}" '
        f'data-priority="{row.priority}" data-name="{escape(row.name)}" data-entity="{escape(row.entity_id)}" '
        f'data-owner="{escape(row.owner)}"{" data-mine" if mine else ""} tabindex="-1">\n'
    )


def _pick(row: BoardRow) -> str:
    return (
        f'<input type="checkbox" name="job" value="{row.id}" form="bulk" '
        f'aria-labelledby="select-head name-{row.id}">'
    )


def _actions(row: BoardRow, path: str) -> str:
    return (
        f'<a class="menu" href="/jobs/menu/{row.id}?back={quote(path)}" data-menu="{row.id}" '
        f'aria-haspopup="menu" aria-label="Actions for {escape(row.name)}, {escape(row.label)}">⋯</a>'
    )


@register.inclusion_tag("fragments/manage_bar.html", takes_context=True)
def manage_bar(context: dict[str, Any], pool: ResourcePool) -> dict[str, Any]:
    """Stands outside the part of the page that live updates replace."""
    request = context["request"]
    return {
        "csrf_token": context.get("csrf_token"),
        "request": request,
        "pool": pool,
        "pools": [each for each in shown_pools.choices(request.user) if each != pool],
        "last": queue_edits.last_undoable(request.user),
        "why_not": why_no_bulk(request.user),
    }
