"""What somebody sets for himself: the profile, the password, the access tokens."""

from __future__ import annotations

from typing import Any

from django.conf import settings
from django.contrib import messages
from django.contrib.auth import update_session_auth_hash
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect

from accounts import tokens, users
from accounts.logins import confirms
from accounts.models import AccessToken, Scope
from accounts.passwords import weakness
from accounts.refusals import Refusal
from accounts.rights import Right
from webui import client_address
from webui.pages.frame import actor, or_404, page, posted, show, user_of

#: choices of how long a token counts, in days
_LIFETIMES = [(7, "in a week"), (30, "in 30 days"), (90, "in 90 days"), (365, "in a year"), (-1, "never")]


@page
def overview(request: HttpRequest) -> HttpResponse:
    """The page; what a form of it was sent with is shown again beside what is wrong with it."""
    return _show(request)


def _show(request: HttpRequest, **more: Any) -> HttpResponse:
    user = user_of(request)
    longest = settings.ACCESS_TOKEN_DAYS_MAX
    context: dict[str, Any] = {
        "person": user,
        "tokens": AccessToken.objects.filter(user=user)[:100],
        "scopes": Scope.choices,
        "lifetimes": [(days, word) for days, word in _LIFETIMES if longest == -1 or 0 < days <= longest],
        "days": settings.ACCESS_TOKEN_DAYS,
        "has_password": user.has_usable_password(),
        "errors": {},
        **more,
    }
    return show(request, "account", context, room="Settings", status=400 if context["errors"] else 200)


@posted(Right.OWN)
def profile(request: HttpRequest) -> HttpResponse:
    user, name = user_of(request), request.POST.get("display_name", "").strip()
    try:
        users.change(user, {"display_name": name}, asking=user)
    except Refusal as refusal:
        return _show(request, errors={"display_name": str(refusal)})
    messages.success(request, "Name saved.")
    return redirect("/settings")


@posted(Right.OWN)
def password(request: HttpRequest) -> HttpResponse:
    """Another password. Logins elsewhere end; this one goes on, and access tokens do."""
    user, new = user_of(request), request.POST.get("new", "")
    errors = {}
    try:
        if user.has_usable_password() and not confirms(
            user, request.POST.get("old", ""), address=client_address.of(request)
        ):
            errors["old"] = "This is not your current password."
    except Refusal as error:
        errors["old"] = str(error)
    if weak := weakness(new):
        errors["new"] = weak
    elif new != request.POST.get("again", ""):
        errors["again"] = "The passwords do not match."
    if errors:
        return _show(request, errors=errors)
    users.change(user, {}, asking=user, password=new)
    update_session_auth_hash(request, user)
    messages.success(request, "Password changed. Logins elsewhere have ended; access tokens stay valid.")
    return redirect("/settings")


@posted(Right.OWN)
def make_token(request: HttpRequest) -> HttpResponse:
    """Make one, and show it: in this answer and never again."""
    try:
        days = float(request.POST.get("days", ""))
        scope = Scope(request.POST.get("scope", ""))
    except ValueError:
        return _show(request, errors={"token": "Choose when the token expires, and its scope."})
    try:
        made, token = tokens.create(
            user_of(request),
            description=request.POST.get("description", ""),
            days=days,
            scope=scope,
            actor=actor(request),
        )
    except Refusal as refusal:
        return _show(request, errors={"token": str(refusal)})
    return _show(request, made=made, token=token)


@posted(Right.OWN)
def revoke_token(request: HttpRequest, token_id: int) -> HttpResponse:
    row = AccessToken.objects.filter(pk=token_id, user=user_of(request)).first()
    tokens.revoke(or_404(row, f"You have no access token {token_id}."), actor=actor(request))
    messages.success(request, f"Token {token_id} has been revoked.")
    return redirect("/settings#tokens")
