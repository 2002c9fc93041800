"""What the Views menu of lists, charts and queues posts: save the address as a view, change a view, delete it."""

from __future__ import annotations

from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect

from accounts import saved_views
from accounts.rights import Right
from webui.pages.frame import back_to, or_404, posted, refusals_told, user_of


@posted(Right.OWN)
def save(request: HttpRequest) -> HttpResponse:
    """`name`, `back`: the address that is saved, and `shared`."""
    address = back_to(request, "/experiments")
    with refusals_told(request):
        name = request.POST.get("name", "")
        found = saved_views.save(user_of(request), name, address, is_shared=bool(request.POST.get("shared")))
        messages.success(request, f"View {found.name!r} saved.")
        address = found.address
    return redirect(address)


@posted(Right.OWN)
def act(request: HttpRequest, view_id: int) -> HttpResponse:
    """`do`: change (to `name` and `shared`) or delete."""
    user = user_of(request)
    found = or_404(saved_views.seen_by(user).filter(pk=view_id).first(), f"There is no view {view_id}.")
    with refusals_told(request):
        if request.POST.get("do") == "delete":
            saved_views.delete(user, found)
            messages.success(request, f"View {found.name!r} deleted.")
        else:
            name = request.POST.get("name", "")
            saved_views.change(user, found, name=name, is_shared=bool(request.POST.get("shared")))
            messages.success(request, f"View {found.name!r} saved.")
    return redirect(back_to(request, found.address))
