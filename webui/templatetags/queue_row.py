"""A row of the departures board, with what scripts read of it; its columns are those of webui.pages.queue.columns."""

from __future__ import annotations

from typing import Any
from urllib.parse import quote

from django import template
from django.utils.html import escape
from django.utils.safestring import SafeString, mark_safe

from shown.queue.board import BoardRow
from webui.pages.queue.columns import SeenRow
from webui.templatetags.console import query

register = template.Library()


@register.simple_tag(takes_context=True)
def queue_row(context: dict[str, Any], row: BoardRow, version: str) -> SafeString:
    """The `<tr>` of one job, or of the first of several alike."""
    request = context["request"]
    unfolded = query(context, like=row.id, show="all", page="", sort="") if row.alike > 1 else ""
    line = SeenRow(row, row.owner_id == request.user.pk, unfolded)
    cells = "".join(column.cell(line).td for column in context["columns"])
    return mark_safe(
        f"{_head(row, version, line.is_mine)}{_pick(row)}{cells}{_actions(row, request.path)}</tr>"
    )


def _head(row: BoardRow, version: str, mine: bool) -> str:
    place = "" if row.place is None else f' data-place="{row.place}"'
    which = f' class="alike" data-alike="{row.alike}"' if row.alike > 1 else f' data-job="{row.id}"'
    return (
        f'<tr id="{row.key}"{which} data-version="{version}"{place} data-kind="{row.kind}" data-state="{row.state}" '
        f'data-priority="{row.priority}" data-name="{escape(row.name)}" data-entity="{escape(row.entity_id)}" '
        f'data-owner="{escape(row.owner)}"{" data-mine" if mine else ""} tabindex="-1">\n'
    )


def _pick(row: BoardRow) -> str:
    if row.alike > 1:
        return '<td class="pick"></td>\n'
    return (
        f'<td class="pick"><input type="checkbox" name="job" value="{row.id}" form="bulk" '
        f'aria-labelledby="select-head name-{row.id}"></td>\n'
    )


def _actions(row: BoardRow, path: str) -> str:
    if row.alike > 1:
        return '<td class="actions"></td>'
    return (
        f'<td class="actions"><a class="menu" href="/jobs/menu/{row.id}?back={quote(path)}" data-menu="{row.id}" '
        f'aria-haspopup="menu" aria-label="Actions for {escape(row.name)}, {escape(row.label)}">⋯</a></td>'
    )
