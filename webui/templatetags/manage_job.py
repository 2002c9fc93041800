"""The tag that puts the actions of the queue on its page: the bar of the selected jobs, and places for dialogs."""

from __future__ import annotations

from typing import Any

from django import template

from hosts.models import ResourcePool
from jobs import queue_edits
from shown.queue.edit_rights import why_no_bulk

register = template.Library()


@register.inclusion_tag("fragments/manage_bar.html", takes_context=True)
def manage_bar(context: dict[str, Any], pool: ResourcePool) -> dict[str, Any]:
    """Stands outside the part of the page that live updates replace."""
    request = context["request"]
    return {
        "csrf_token": context.get("csrf_token"),
        "request": request,
        "pool": pool,
        "pools": ResourcePool.objects.exclude(pk=pool.pk),
        "last": queue_edits.last_undoable(request.user),
        "why_not": why_no_bulk(request.user),
    }
