"""Logging in and out of the console."""

from __future__ import annotations

from typing import Any
from urllib.parse import urlencode

from django.conf import settings
from django.contrib.auth import login as start_session
from django.contrib.auth import logout as end_session
from django.contrib.auth import user_logged_in, user_logged_out
from django.dispatch import Signal, receiver
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.shortcuts import redirect, render
from django.urls import reverse
from django.utils.http import url_has_allowed_host_and_scheme
from django.views.decorators.http import require_http_methods, require_POST

from accounts.logins import log_in, note
from accounts.models import User
from accounts.refusals import Refusal
from accounts.rights import Right, declares
from webui import client_address


@declares({"GET": Right.OPEN, "POST": Right.OPEN})
@require_http_methods(["GET", "POST"])
def login(request: HttpRequest) -> HttpResponse:
    """The login form; afterwards the page that was asked for."""
    wanted: str = request.POST.get("next") or request.GET.get("next", "")
    context = {
        "cluster_name": settings.CLUSTER_NAME,
        "plain_http_banner": settings.INSECURE_HTTP,
        "next": wanted,
        "username": request.POST.get("username", ""),
        **_single_sign_on(request, wanted),
    }
    if request.method == "GET":
        return render(request, "pages/login.html", context)
    username = request.POST.get("username", "")
    try:
        user = log_in(username, request.POST.get("password", ""), address=client_address.of(request))
    except Refusal as error:
        return render(request, "pages/login.html", {**context, "error": str(error)}, status=403)
    if user is None or not user.is_active:
        context["error"] = "The username or password is wrong."
        return render(request, "pages/login.html", context, status=403)
    start_session(request, user, backend="django.contrib.auth.backends.ModelBackend")
    safe = url_has_allowed_host_and_scheme(wanted, {request.get_host()}, request.is_secure())
    return HttpResponseRedirect(wanted if safe else "/")


def _single_sign_on(request: HttpRequest, wanted: str) -> dict[str, str]:
    """The button that leads to the provider, where there is one, and what came of the last try."""
    if not settings.OIDC_ISSUER:
        return {}
    from webui.single_sign_on import sentence  # needs what is installed with a provider alone

    place = reverse("openid_connect_login", kwargs={"provider_id": "oidc"})
    return {
        "single_sign_on": f"{place}?{urlencode({'next': wanted or '/'})}",
        "single_sign_on_name": settings.OIDC_NAME,
        "error": sentence(request.GET.get("sso", "")),
    }


@receiver([user_logged_in, user_logged_out], dispatch_uid="events of sessions")
def _note(signal: Signal, user: User | None, **_: Any) -> None:
    """Leave an event of each session that begins or ends; those of single sign-on begin with the same signal."""
    if user is not None:
        note(user, "logged_in" if signal is user_logged_in else "logged_out")


@declares({"POST": Right.OPEN})
@require_POST
def logout(request: HttpRequest) -> HttpResponse:
    end_session(request)
    return redirect("/login")
