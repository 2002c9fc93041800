"""Who changed what and when on the whole server; the filters are in the address, and the CSV file has the same."""

from __future__ import annotations

from datetime import UTC, datetime
from datetime import time as clock

from django.http import HttpRequest, HttpResponse, QueryDict
from django.http.response import HttpResponseBase
from django.utils import timezone

from accounts.models import User
from accounts.refusals import Refusal
from shown import audit
from shown.audit import AuditFilters
from webui.downloads.tables import csv_file
from webui.pages.frame import page, show, user_of
from webui.query import as_id, choices, time

_DAY_CHARACTERS = len("2026-01-31")


def read(query: QueryDict) -> tuple[AuditFilters, list[str]]:
    """What the address asks for, and a sentence for each unknown value. Raises Refusal for what is no time."""
    chosen, wrong = choices(query, {"kind": audit.KINDS, "change": audit.CHANGES})
    kind, subject = chosen.get("kind", ""), chosen.get("id", "").strip()
    if subject and not kind:
        wrong = [*wrong, "Select an object to filter by its ID or name."]
    filters = AuditFilters(
        user=chosen.get("user", "").strip(),
        kind=kind,
        subject=subject if kind else "",
        change=chosen.get("change", ""),
        since=_time(query, "from"),
        before=_time(query, "to", is_end=True),
    )
    return filters, wrong


def _time(query: QueryDict, name: str, *, is_end: bool = False) -> datetime | None:
    """A time, or the begin of a day (UTC); as an end of a range, a day is the end of it."""
    seconds = time(query, name)
    if seconds is None:
        return None
    try:
        moment = datetime.fromtimestamp(seconds, UTC)
    except (ValueError, OverflowError) as error:
        raise Refusal(f"{name} is {query[name]!r}, which is out of range.") from error
    is_day = len(query[name]) == _DAY_CHARACTERS
    return datetime.combine(moment, clock.max, UTC) if is_end and is_day else moment


@page
def overview(request: HttpRequest) -> HttpResponse:
    """The newest changes, or those beside the one that `before` or `after` names."""
    (filters, wrong), viewer = read(request.GET), user_of(request)
    found = audit.found(filters, viewer)
    after, before = (as_id(request.GET.get(name, "")) or None for name in ("after", "before"))
    context = {
        "list": audit.page(found, viewer, after=after, before=before),
        "filters": filters,
        "kinds": audit.KINDS,
        "changes": audit.CHANGES,
        "users": User.objects.order_by("username").values_list("username", flat=True)[:500],
        "sees_all": viewer.is_admin,
        "wrong": wrong,
    }
    return show(request, "audit", context, room="Audit")


@page
def export(request: HttpRequest) -> HttpResponseBase:
    """All of them as CSV."""
    viewer = user_of(request)
    filters, _ = read(request.GET)
    blocks = audit.csv_blocks(audit.found(filters, viewer), viewer)
    return csv_file(f"audit-{timezone.now():%Y-%m-%d}", blocks)
