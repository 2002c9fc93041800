"""Saved views: addresses of lists, charts and queues that a user has named, for themselves or for the team.

A view is its address alone, so a link shares it as well. Its owner and admins change a view of the team.
"""

from __future__ import annotations

from django.db import IntegrityError, transaction
from django.db.models import Q, QuerySet

from accounts import rights
from accounts.models import SavedView, User
from accounts.refusals import Code, Refusal
from events.models import Event
from events.record import record

MOST_PER_USER = 100
NAME_CHARACTERS = 80
ADDRESS_CHARACTERS = 2000
#: page -> how its addresses begin
PAGES = {"experiments": "/experiments", "charts": "/compare", "queue": "/jobs", "tasks": "/tasks"}
#: parameters that are not part of a view
_PASSING = {"page", "pages", "part"}


def on(page: str, user: User) -> QuerySet[SavedView]:
    """The views of this page that the user sees: their own and the team's, by name."""
    seen = Q(owner=user) | Q(is_shared=True, owner__is_active=True)
    return SavedView.objects.select_related("owner").filter(seen, page=page).order_by("name", "pk")


def seen_by(user: User) -> QuerySet[SavedView]:
    """All views that the user may see."""
    return SavedView.objects.select_related("owner").filter(Q(owner=user) | Q(is_shared=True))


def may_change(user: User, view: SavedView) -> bool:
    """Its owner may, and of the team's views admins as well."""
    return view.owner_id == user.pk or (view.is_shared and user.is_admin)


@transaction.atomic
def save(user: User, name: str, address: str, *, is_shared: bool) -> SavedView:
    """Save an address under a name, in place of the user's view of that name, if there is one. Raises Refusal."""
    name, (page, address) = _named(name), placed(address)
    if is_shared:
        rights.require_editor(user)
    User.objects.select_for_update().get(pk=user.pk)  # one at a time, so that the bound holds
    found = SavedView.objects.filter(owner=user, page=page, name=name).first()
    if found is None:
        if SavedView.objects.filter(owner=user).count() >= MOST_PER_USER:
            raise Refusal(
                f"You have {MOST_PER_USER} saved views, which is the maximum; delete some first.",
                Code.CONFLICT,
            )
        found = SavedView(owner=user, page=page, name=name)
    found.address, found.is_shared = address, is_shared
    found.save()
    _record(found, "view saved", user)
    return found


@transaction.atomic
def change(user: User, view: SavedView, *, name: str, is_shared: bool) -> None:
    """Rename a view, share it with the team or take it back. Raises Refusal."""
    _require(user, view)
    if is_shared and not view.is_shared:
        rights.require_editor(user)
    view.name, view.is_shared = _named(name), is_shared
    try:
        with transaction.atomic():
            view.save(update_fields=["name", "is_shared"])
    except IntegrityError:
        owner = "You already have" if view.owner_id == user.pk else f"{view.owner.username} already has"
        raise Refusal(
            f"{owner} a view named {view.name!r} on this page; choose another name.", Code.CONFLICT
        ) from None
    _record(view, "view changed", user)


@transaction.atomic
def delete(user: User, view: SavedView) -> None:
    """Raises Refusal."""
    _require(user, view)
    _record(view, "view deleted", user)
    view.delete()


def _require(user: User, view: SavedView) -> None:
    rights.require_scope(user, writes=True)
    if not may_change(user, view):
        raise Refusal(
            f"View {view.name!r} belongs to {view.owner.username}; only its owner or an admin can change it.",
            Code.FORBIDDEN,
        )


def _named(name: str) -> str:
    name = " ".join(name.split())
    if not 0 < len(name) <= NAME_CHARACTERS or not name.isprintable():
        raise Refusal(f"Enter a name of 1 to {NAME_CHARACTERS} characters for the view.")
    return name


def placed(address: str) -> tuple[str, str]:
    """Return the page of an address, and the address without what is not part of a view. Raises Refusal."""
    path, _, query = address.partition("?")
    if len(address) > ADDRESS_CHARACTERS:
        raise Refusal(
            f"The address of this view has {len(address):,} characters; at most {ADDRESS_CHARACTERS:,} can be saved. "
            "Use a filter instead of a long list of runs."
        )
    page = next((page for page, at in PAGES.items() if path == at or path.startswith(f"{at}/")), None)
    if page is None or not address.isprintable():
        raise Refusal(f"Only these pages have saved views: {', '.join(PAGES.values())}.")
    kept = "&".join(part for part in query.split("&") if part.partition("=")[0] not in _PASSING)
    return page, f"{path}?{kept}" if kept else path


def _record(view: SavedView, what: str, user: User) -> None:
    detail = {"view": view.name, "page": view.page, "shared": view.is_shared, "owner": view.owner.username}
    record(Event.Kind.USER, view.owner_id, reason=what, actor=f"user:{user.username}", detail=detail)
