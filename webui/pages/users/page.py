"""Users, for admins: who there is and when they were last seen; created, edited, deactivated; passwords and tokens."""

from __future__ import annotations

from typing import Any

from django.contrib import messages
from django.core.paginator import Paginator
from django.db.models import Count, F, Q
from django.db.models.functions import Lower
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.utils.html import format_html

from accounts import passwords, tokens, users
from accounts.models import AccessToken, User
from accounts.refusals import Refusal
from accounts.rights import Right
from jobs.models import Job
from jobs.states import JobState
from webui.pages.frame import actor, form, or_404, page_for, posted, refusals_told, show, user_of
from webui.pages.table_columns import Column, Sort
from webui.pages.users.form import NewUserForm, UserForm
from webui.query import choices
from webui.templatetags.console import ago

ROOM = "Users"
PER_PAGE = 50
CHIPS = {"active": True, "deactivated": False}


def _agent(user: User) -> str:
    return user.unix_user + (f" ({user.unix_uid})" if user.unix_uid is not None else "")


COLUMNS = {
    column.key: column
    for column in (
        Column[Any]("username", "User", lambda user: format_html(
            '<a class="name" href="/users/{}">{}</a>', user.pk, user.username), Lower("username"), css="wide",
            label=""),
        Column[Any]("name", "Display name", lambda user: user.display_name, Lower("display_name"), css="full"),
        Column[Any]("role", "Role", lambda user: user.role, F("role")),
        Column[Any]("state", "State", lambda user: "active" if user.is_active else "deactivated", F("is_active")),
        Column[Any]("agent", "Agent user", _agent, F("unix_user"), css="mono"),
        Column[Any]("seen", "Last seen", lambda user: ago(user.seen_at), F("seen_at"), is_downwards=True),
        Column[Any]("tokens", "Access tokens", lambda user: str(user.live_tokens), F("live_tokens"), is_number=True,
                    is_downwards=True),
    )
}  # fmt: skip


@page_for(Right.ADMIN)
def listing(request: HttpRequest) -> HttpResponse:
    """All users, or those whose name, display name or address has `?q`; `?show`: active or deactivated."""
    wanted, wrong = choices(request.GET, {"show": CHIPS})
    rows = User.objects.annotate(
        live_tokens=Count("access_tokens", filter=AccessToken.live("access_tokens__"))
    )
    if text := wanted.get("q", "").strip():
        rows = rows.filter(
            Q(username__icontains=text) | Q(display_name__icontains=text) | Q(email__icontains=text)
        )
    if chip := wanted.get("show"):
        rows = rows.filter(is_active=CHIPS[chip])
    word = wanted.get("sort", "")
    sort = Sort.read(word if word.removeprefix("-") in COLUMNS else "username", COLUMNS.get, "username")
    found = Paginator(rows.order_by(sort.expression, "pk"), PER_PAGE).get_page(wanted.get("page"))
    context = {
        "page": found,
        "rows": [[column.cell(user) for column in COLUMNS.values()] for user in found],
        "heads": [sort.head(column) for column in COLUMNS.values()],
        "is_sortable": True,
        "chips": list(CHIPS),
        "chosen": wanted,
        "wrong": wrong,
    }
    return show(request, "users", context, room=ROOM)


def _find(user_id: int) -> User:
    return or_404(User.objects.filter(pk=user_id).first(), f"There is no user {user_id}.")


@page_for(Right.ADMIN)
def detail(request: HttpRequest, user_id: int) -> HttpResponse:
    """One user, with their access tokens and what can be done."""
    return _show(request, _find(user_id))


def _show(request: HttpRequest, user: User, **more: Any) -> HttpResponse:
    context = {
        "person": user,
        "home": f"/users/{user.pk}",
        "agent": _agent(user),
        "tokens": AccessToken.objects.filter(user=user)[:100],
        "live": AccessToken.objects.filter(AccessToken.live(), user=user).count(),
        "jobs": Job.objects.filter(owner=user).exclude(state=JobState.ENDED).count(),
        "is_own": user == user_of(request),
        **more,
    }
    return show(request, "user", context, room=ROOM, status=400 if more.get("error") else 200)


@form(Right.ADMIN, shown_to=Right.ADMIN)
def new(request: HttpRequest) -> HttpResponse:
    """The form of a new user; POST creates them, and shows a generated password in this one answer."""
    filled = NewUserForm.of(request, {"role": User.Role.EDITOR})
    if filled.is_valid():
        values = {**filled.cleaned_data}
        chosen = values.pop("password")
        password = chosen or passwords.generated()
        try:
            user = users.create(values, password=password, actor=actor(request))
        except Refusal as refusal:
            filled.refuse(refusal)
        else:
            return _show(
                request, user, said=f"User {user.username} created.", password="" if chosen else password
            )
    return _form(request, filled)


@form(Right.ADMIN, shown_to=Right.ADMIN)
def edit(request: HttpRequest, user_id: int) -> HttpResponse:
    """The form of a user; POST keeps what it says."""
    user = _find(user_id)
    filled = UserForm.of(request, UserForm.values_of(user))
    if filled.is_valid():
        try:
            users.change(user, filled.cleaned_data, asking=user_of(request))
        except Refusal as refusal:
            filled.refuse(refusal)
        else:
            messages.success(request, f"User {user.username} saved.")
            return redirect(f"/users/{user_id}")
    return _form(request, filled, _find(user_id))


def _form(request: HttpRequest, filled: UserForm, user: User | None = None) -> HttpResponse:
    context = {"form": filled, "person": user}
    return show(request, "user_form", context, room=ROOM, status=400 if filled.errors else 200)


@posted(Right.ADMIN)
def act(request: HttpRequest, user_id: int, action: str) -> HttpResponse:
    """activate, deactivate; password: set another one, which is shown once if it is generated."""
    user, asking = _find(user_id), user_of(request)
    if action == "password":
        return _reset(request, user)
    if action not in {"activate", "deactivate"}:
        raise Http404(f"There is no action {action}.")
    with refusals_told(request):
        users.change(user, {"is_active": action == "activate"}, asking=asking)
        messages.success(request, f"User {user.username} {action}d.")
    return redirect(f"/users/{user_id}")


def _reset(request: HttpRequest, user: User) -> HttpResponse:
    chosen, keep = request.POST.get("password", ""), "keep" in request.POST
    password = chosen or passwords.generated()
    try:
        if user == user_of(request):
            raise Refusal("Change your own password in Settings, which asks for the current one.")
        users.change(user, {}, asking=user_of(request), password=password, keep_tokens=keep)
    except Refusal as refusal:
        return _show(request, _find(user.pk), error=str(refusal))
    said = f"Password of {user.username} changed; their logins have ended."
    return _show(request, user, said=said, password="" if chosen else password)


@posted(Right.ADMIN)
def revoke_token(request: HttpRequest, user_id: int, token_id: int) -> HttpResponse:
    row = AccessToken.objects.filter(pk=token_id, user_id=user_id).first()
    tokens.revoke(or_404(row, f"User {user_id} has no access token {token_id}."), actor=actor(request))
    messages.success(request, f"Token {token_id} has been revoked.")
    return redirect(f"/users/{user_id}#tokens")
