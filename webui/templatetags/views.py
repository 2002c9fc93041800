"""The Views menu of a page: the saved views that the user sees there, and the form that saves this one."""

from __future__ import annotations

from typing import Any

from django import template

from accounts import saved_views

register = template.Library()


@register.inclusion_tag("fragments/saved_views.html", takes_context=True)
def views_menu(context: dict[str, Any]) -> dict[str, Any]:
    request = context["request"]
    address = request.get_full_path()
    page, here = saved_views.placed(address[: saved_views.ADDRESS_CHARACTERS])
    rows = [(view, saved_views.may_change(request.user, view)) for view in saved_views.on(page, request.user)]
    groups = {
        "Mine": [row for row in rows if row[0].owner_id == request.user.pk],
        "Team": [row for row in rows if row[0].owner_id != request.user.pk],
    }
    current = next((view for view, _ in rows if view.address == here), None)
    return {
        "groups": groups,
        "current": current,
        "here": address,
        "user": request.user,
        "most": saved_views.NAME_CHARACTERS,
    }
