"""The search over the whole console: a page, and the dialog that Ctrl-K opens on every page."""

from __future__ import annotations

from django.http import HttpRequest, HttpResponse

from shown import finding
from trainmaster.quantities import counted
from webui.pages import rooms
from webui.pages.frame import page, show, user_of

NOTHING = "Nothing found. Search for a hyperparameter as lr=0.01."


@page
def find(request: HttpRequest) -> HttpResponse:
    """What `q` finds; without it, the pages of the console."""
    text = request.GET.get("q", "").strip()
    user = user_of(request)
    pages = [finding.Hit(room.name, "", room.href) for room in rooms.found(text, user)]
    groups = finding.find(user, text)
    first = 1 if groups and groups[0][0] == "Actions" else 0
    if pages:
        groups.insert(first, ("Pages", pages))
    found = sum(len(hits) for _, hits in groups)
    context = {
        "q": text,
        "groups": groups,
        "said": counted(found, "result") if found else NOTHING,
    }
    return show(request, "find", context, room="", fragment="found")
