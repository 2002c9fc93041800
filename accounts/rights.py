"""Who may do what: one rule and one sentence for each right, the same on pages, over REST and in sockets.

Viewers read, editors change what is theirs, admins change everything. An access token narrows what its owner may.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import Flag, auto
from typing import Protocol, TypeVar

from accounts.models import Scope, User
from accounts.refusals import Code, Refusal


class Right(Flag):
    """What a route asks of whoever calls it. Every route of every kind declares one for each of its methods.

    Whose the thing is, which EDIT leaves open, the view asks itself: `require_owner`.
    """

    #: no login
    OPEN = auto()
    #: a login
    READ = auto()
    #: a login that may change something; for what is the caller's own, or what changes nothing
    OWN = auto()
    EDIT = auto()
    ADMIN = auto()
    #: beside another: not with an access token of a lesser scope than full
    FULL = auto()
    #: a run's token, for its own run; beside another: that as well
    RUN = auto()


Route = TypeVar("Route")


def declares(by_method: Mapping[str, Right]) -> Callable[[Route], Route]:
    """Declare the rights of a route that checks them itself, by method; `*`: any method."""

    def declared(route: Route) -> Route:
        route.rights = by_method  # type: ignore[attr-defined]
        return route

    return declared


def declared_by(route: object) -> Mapping[str, Right]:
    """The right that a route asks for, by method; empty where it declares none."""
    found: Mapping[str, Right] = getattr(route, "rights", {})
    return found


def require(user: User, right: Right) -> None:
    """Raises Refusal where the role of a user, or the scope of the token that was sent, does not reach so far."""
    if Right.FULL in right:
        require_scope(user, writes=False, full=True)
    if Right.ADMIN in right:
        require_admin(user)
    elif Right.EDIT in right:
        require_editor(user)
    elif Right.OWN in right:
        require_scope(user, writes=True)


class Owned(Protocol):
    """What belongs to somebody: an experiment, a command, a job, a workspace."""

    @property
    def pk(self) -> object: ...

    @property
    def owner(self) -> User | None: ...

    @property
    def owner_id(self) -> int | None: ...


def require_scope(user: User, *, writes: bool, full: bool = False) -> None:
    """Raises Refusal where the access token that was sent does not reach so far."""
    if writes and user.scope == Scope.READ:
        raise _forbidden("This access token has the scope read and cannot change anything.")
    if full and user.scope != Scope.FULL:
        raise _forbidden(
            f"This access token has the scope {user.scope}. Use a token with the scope full, or log in."
        )


def require_admin(user: User) -> None:
    if user.is_admin:
        return
    if user.role == User.Role.ADMIN:
        raise _forbidden(
            f"Only admins can do this, with an access token of the scope full; this one has the scope {user.scope}."
        )
    raise _forbidden(f"Only admins can do this; the role of {user.username} is {user.role}.")


def require_editor(user: User) -> None:
    require_scope(user, writes=True)
    if not user.may_edit:
        raise viewer(user.username)


def viewer(username: str) -> Refusal:
    return _forbidden(f"{username} is a viewer and cannot change anything.")


def may_change(user: User, thing: Owned) -> bool:
    """Its owner and admins change a thing."""
    return user.is_admin or (user.may_edit and thing.owner_id == user.pk)


def require_owner(user: User, thing: Owned, name: str = "") -> None:
    """`name`: what the sentence calls the thing, if not by its kind and id."""
    require_editor(user)
    if not (user.is_admin or thing.owner_id == user.pk):
        whose = thing.owner.username if thing.owner else "nobody"
        name = name or f"{type(thing).__name__.lower()} {thing.pk}"
        raise _forbidden(f"{name} belongs to {whose}; only its owner or an admin can change it.")


def _forbidden(sentence: str) -> Refusal:
    return Refusal(sentence, Code.FORBIDDEN)
