"""Groups of people: departments, their teams, who is in them."""

from __future__ import annotations

from django import forms
from django.contrib import messages
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.shortcuts import redirect

from accounts import user_groups
from accounts.models import Group, User
from accounts.refusals import Refusal
from accounts.rights import Right
from dispatch.keeping import pool_history
from jobs import group_rows
from metrics import group_chart
from webui.forms import Chosen, Form
from webui.pages import cluster
from webui.pages.frame import actor, form, or_404, page, posted, refusals_told, show, user_of

ROOM = "Groups"


class GroupForm(Form):
    name = forms.CharField(label="Name", max_length=64, help_text="Letters, digits, '.', '_' and '-'.")
    parent = Chosen("Department", help_text="The group that this one is a team of.")
    members = forms.CharField(
        label="Members",
        required=False,
        widget=forms.Textarea({"rows": 4}),
        help_text="Usernames. A user is in one group at most: whoever is in another one moves here.",
    )

    def users(self) -> list[User]:
        """Raises Refusal for a name that nobody has."""
        names = set(self.cleaned_data["members"].replace(",", " ").split())
        found = list(User.objects.filter(username__in=names))
        if missing := sorted(names - {user.username for user in found}):
            raise Refusal(f"There is no user {missing[0]}.", field="members")
        return found


def _find(name: str) -> Group:
    group = Group.objects.select_related("parent").filter(name=name).first()
    return or_404(group, f"There is no group {name}.")


@page
def listing(request: HttpRequest) -> HttpResponse:
    """All groups, each department with its teams."""
    groups = sorted(user_groups.every(), key=lambda group: group.path)
    return show(request, "groups", {"groups": groups, "may_act": user_of(request).is_admin}, room=ROOM)


@page
def detail(request: HttpRequest, name: str) -> HttpResponse:
    """One group: its teams, its members."""
    group = _find(name)
    context = {
        "group": group,
        "groups": group_rows.of_group(group),
        "view": cluster.read(request.GET),
        "ranges": list(cluster.RANGES),
        "teams": user_groups.every().filter(parent=group),
        "members": group.members.order_by("username"),
        "may_act": user_of(request).is_admin,
    }
    return show(request, "group", context, room=ROOM)


@page
def chart(request: HttpRequest, name: str) -> JsonResponse:
    """What the group held of each pool, as Plotly JSON; none where nothing was counted."""
    group, view = _find(name), cluster.read(request.GET)
    spans = pool_history.of_group(group, view.first, view.last, view.span_seconds)
    return JsonResponse(
        {"figures": group_chart.figures(spans, view.first.timestamp(), view.last.timestamp())}
    )


@form(Right.ADMIN, shown_to=Right.ADMIN)
def new(request: HttpRequest) -> HttpResponse:
    """The form of a new group; POST creates it."""
    return _form(request, None)


@form(Right.ADMIN, shown_to=Right.ADMIN)
def edit(request: HttpRequest, name: str) -> HttpResponse:
    """The form of a group; POST changes it."""
    return _form(request, _find(name))


def _form(request: HttpRequest, group: Group | None) -> HttpResponse:
    was = list(group.members.order_by("username")) if group else []
    initial = {"name": group.name, "parent": group.parent or ""} if group else {}
    filled = GroupForm.of(request, {**initial, "members": " ".join(user.username for user in was)})
    above = Group.objects.filter(parent=None).exclude(pk=group.pk if group else 0)
    filled.fields["parent"].widget = forms.Select(
        choices=[("", "none"), *((each.name, each.name) for each in above)]
    )
    if filled.is_valid():
        try:
            users, name, parent = filled.users(), filled.cleaned_data["name"], filled.cleaned_data["parent"]
            if group:
                gone = [user for user in was if user not in users]
                user_groups.change(
                    group, name=name, parent=parent, add=users, remove=gone, actor=actor(request)
                )
            else:
                user_groups.create(name, parent=parent, add=users, actor=actor(request))
        except Refusal as refusal:
            filled.add_error(refusal.field if refusal.field in filled.fields else None, str(refusal))
        else:
            messages.success(request, f"Group {name} saved.")
            return redirect(f"/groups/{name}")
    context = {"form": filled, "group": group}
    return show(request, "group_form", context, room=ROOM, status=400 if filled.errors else 200)


@posted(Right.ADMIN)
def delete(request: HttpRequest, name: str) -> HttpResponse:
    with refusals_told(request):
        user_groups.delete(_find(name), actor=actor(request))
        messages.success(request, f"Group {name} deleted.")
        return redirect("/groups")
    return redirect(f"/groups/{name}")
