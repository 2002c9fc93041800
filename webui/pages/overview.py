"""The start of the console: what of mine runs, waits and failed, the pools, idle GPUs, and what ends soon."""

from __future__ import annotations

from datetime import UTC, datetime

from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.utils import timezone

from accounts.models import User
from accounts.rights import Right
from shown import overview as shown
from webui.pages.frame import page, posted, show, user_of
from webui.query import time


@page
def overview(request: HttpRequest) -> HttpResponse:
    """The page, or with `?part` what live updates swap in."""
    user = user_of(request)
    found = shown.of(user, timezone.now())
    topics = ["experiments", "commands", "cluster", "hosts"]
    topics += [f"{kind}:{pool}" for pool in found.my_pools for kind in ("pool", "plan")]
    context = {"found": found, "may_edit": user.may_edit, "topics": " ".join(topics)}
    return show(request, "overview", context, room="Overview", fragment="overview")


@posted(Right.OWN)
def seen(request: HttpRequest) -> HttpResponse:
    """Failures up to the newest that was shown (`until`) have been looked at: the page shows later ones from now on."""
    until = time(request.POST, "until")
    if until is not None and until <= timezone.now().timestamp():
        moment = datetime.fromtimestamp(until, UTC)
        User.objects.filter(pk=user_of(request).pk).update(failures_seen_at=moment)
    return redirect("/overview")
