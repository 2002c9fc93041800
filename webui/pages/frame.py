"""What every page has: the login, the side bar with its counts, and the part that refreshes itself."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import wraps
from http import HTTPStatus
from typing import Any, TypeVar, cast

from django.conf import settings
from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.db import DataError
from django.http import Http404, HttpRequest, HttpResponse, JsonResponse
from django.http.response import HttpResponseBase
from django.shortcuts import render
from django.utils.http import url_has_allowed_host_and_scheme
from django.views.decorators.http import require_http_methods
from django.views.generic import RedirectView

from accounts import rights
from accounts.models import Cluster, User
from accounts.refusals import Refusal
from accounts.rights import Right, declares
from shown import full_disk
from webui.pages import rooms
from webui.refusals import STATUS

View = Callable[..., HttpResponseBase]
Found = TypeVar("Found")
#: headers of an answer that no browser keeps
UNKEPT = {"Cache-Control": "no-store"}


def page(view: View) -> View:
    """A page that shows something to people who are logged in, and changes nothing."""
    return page_for(Right.READ)(view)


def page_for(right: Right) -> Callable[[View], View]:
    """As `page`, for those who have the right."""
    return _guarded({"GET": right})


def form(right: Right, *, view_asks: bool = False, shown_to: Right = Right.READ) -> Callable[[View], View]:
    """A page that shows a form to people who are logged in, and takes it from those who have the right.

    With `view_asks` the view itself refuses the others, to say so beside what else is wrong.
    """
    return _guarded({"GET": shown_to, "POST": right}, view_asks=view_asks)


def posted(right: Right) -> Callable[[View], View]:
    """A page that only takes forms."""
    return _guarded({"POST": right})


def _guarded(by_method: Mapping[str, Right], *, view_asks: bool = False) -> Callable[[View], View]:
    """What a page refuses, and what the database cannot look up, gets a page, too."""

    def wrap(view: View) -> View:
        @wraps(view)
        def guarded(request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponseBase:
            try:
                if request.method != "POST":
                    rights.require(user_of(request), by_method["GET"])
                    if "part" not in request.GET:  # which pages fetch by themselves
                        user_of(request).seen()
                elif not view_asks:
                    rights.require(user_of(request), by_method["POST"])
                return view(request, *args, **kwargs)
            except Refusal as refusal:
                return refused(request, refusal)
            except DataError:
                return refused(request, Refusal("Invalid value."))

        allowed = [*by_method, "HEAD"] if "GET" in by_method else [*by_method]
        taken = require_http_methods(allowed)(guarded)
        return declares(by_method)(cast(View, login_required(taken)))

    return wrap


def leads_to(url: str) -> View:
    """Another address of a page, which asks for a login itself."""
    return declares({"GET": Right.OPEN})(RedirectView.as_view(url=url, http_method_names=["get", "head"]))


def refused(request: HttpRequest, refusal: Refusal) -> HttpResponse:
    """A page that says why, where no form does."""
    status = STATUS[refusal.code]
    template = f"{status}.html" if status in (HTTPStatus.FORBIDDEN, HTTPStatus.NOT_FOUND) else "400.html"
    return render(request, template, {"exception": str(refusal)}, status=status)


def refusing(view: View) -> View:
    """As `page`, for what scripts read: a refusal is JSON with its status."""
    return page(told_in_json(view))


def told_in_json(view: View) -> View:
    """The view; what it refuses is JSON with its status."""

    @wraps(view)
    def guarded(request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponseBase:
        try:
            return view(request, *args, **kwargs)
        except Refusal as refusal:
            return refused_data(refusal)

    return guarded


def refused_data(refusal: Refusal) -> HttpResponse:
    return JsonResponse({"message": str(refusal)}, status=STATUS[refusal.code])


@contextmanager
def refusals_told(request: HttpRequest) -> Iterator[None]:
    """A refusal ends the block, and the page that follows says why."""
    try:
        yield
    except Refusal as refusal:
        messages.error(request, str(refusal))


def or_404(found: Found | None, sentence: str) -> Found:
    """Return what was found. Raises Http404 with this sentence if that is nothing."""
    if found is None:
        raise Http404(sentence)
    return found


def back_to(request: HttpRequest, home: str) -> str:
    """The page that the form was on: `back`, if it is an address of ours, else `home`."""
    wanted: str = request.POST.get("back") or request.GET.get("back") or home
    return wanted if wanted.startswith("/") and url_has_allowed_host_and_scheme(wanted, None) else home


def user_of(request: HttpRequest) -> User:
    """The logged-in user, as the type that `page` guarantees."""
    return cast(User, request.user)


def actor(request: HttpRequest) -> str:
    return f"user:{user_of(request).username}"


def show(
    request: HttpRequest,
    template: str,
    context: dict[str, Any],
    *,
    room: str,
    fragment: str = "",
    status: int = HTTPStatus.OK,
) -> HttpResponse:
    """The whole page, or with `?part` only the fragment that live updates swap in."""
    if fragment and "part" in request.GET:
        response = render(request, f"fragments/{fragment}.html", context, status=status)
    else:
        context = context | {
            "rooms": rooms.side_bar(room, user_of(request)),
            "cluster_name": settings.CLUSTER_NAME,
            "plain_http_banner": settings.INSECURE_HTTP,
            "disk_warning": full_disk.warning(),
            "cluster_message": Cluster.get().message_now,
        }
        response = render(request, f"pages/{template}.html", context, status=status)
    response["Cache-Control"] = "no-store"
    return response
