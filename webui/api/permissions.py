"""What a role may do. Viewers read; editors change what is theirs; admins change everything."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rest_framework.exceptions import NotAuthenticated
from rest_framework.permissions import SAFE_METHODS, BasePermission
from rest_framework.request import Request

from accounts.models import Scope, User
from commands.models import Command
from experiments.models import Experiment
from jobs.models import Job
from webui.api.authentication import Run
from webui.api.errors import Forbidden

if TYPE_CHECKING:
    from rest_framework.views import APIView


class RolePermission(BasePermission):
    """Reads `open_to_all`, `admin_methods` and `run_methods` of the view; everything else follows the role."""

    def has_permission(self, request: Request, view: APIView) -> bool:
        method = request.method or "GET"
        if getattr(view, "open_to_all", False):
            return True
        who: Any = request.user
        if isinstance(who, Run):
            if method in getattr(view, "run_methods", ()):
                return True
            raise Forbidden("The token of a run may only be used for that run's own reports.")
        if not isinstance(who, User):
            raise NotAuthenticated("Not logged in: send a login token, or log in first.")
        check_scope(who, method, full=method in getattr(view, "full_scope_methods", ()))
        if method in getattr(view, "admin_methods", ()) and not who.is_admin:
            raise Forbidden(_admins_only(who))
        if (
            method not in SAFE_METHODS
            and not who.may_edit
            and method not in getattr(view, "viewer_methods", ())
        ):
            raise Forbidden(f"{who.username} is a viewer and may not change anything.")
        return True


def check_scope(who: User, method: str, *, full: bool = False) -> None:
    """Raises Forbidden where the access token that was sent does not reach so far."""
    if who.scope == Scope.READ and method not in SAFE_METHODS:
        raise Forbidden("The access token has the scope read; it may not change anything.")
    if full and who.scope != Scope.FULL:
        raise Forbidden(f"The access token has the scope {who.scope}; this needs the scope full, or a login.")


def _admins_only(who: User) -> str:
    if who.role == User.Role.ADMIN:
        return f"Only an admin may do this; the access token has the scope {who.scope}, and this needs full."
    return f"Only an admin may do this; {who.username} is {who.role}."


def person(request: Request) -> User:
    """The logged-in user; a run's token is no person."""
    who: Any = request.user
    if not isinstance(who, User):
        raise Forbidden("The token of a run may not be used here.")
    return who


def actor(request: Request) -> str:
    """How event rows name whoever asks."""
    who: Any = request.user
    return f"run:{who.allocation.pk}" if isinstance(who, Run) else f"user:{who.username}"


def require_admin(user: User) -> None:
    if not user.is_admin:
        raise Forbidden(_admins_only(user))


def require_owner(user: User, thing: Experiment | Command | Job) -> None:
    """Only the owner and admins change an experiment, a command or a job."""
    if user.is_admin or thing.owner_id == user.pk:
        return
    name = f"{type(thing).__name__.lower()} {thing.pk}"
    raise Forbidden(f"{name} belongs to {thing.owner.username}; only its owner or an admin may change it.")
