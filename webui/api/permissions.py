"""What a role may do. Viewers read; editors change what is theirs; admins change everything."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rest_framework.exceptions import NotAuthenticated
from rest_framework.permissions import SAFE_METHODS, BasePermission
from rest_framework.request import Request

from accounts.models import User
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
        if method in getattr(view, "admin_methods", ()) and not who.is_admin:
            raise Forbidden(f"Only an admin may do this; {who.username} is {who.role}.")
        if (
            method not in SAFE_METHODS
            and not who.may_edit
            and method not in getattr(view, "viewer_methods", ())
        ):
            raise Forbidden(f"{who.username} is a viewer and may not change anything.")
        return True


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
        raise Forbidden(f"Only an admin may do this; {user.username} is {user.role}.")


def require_owner(user: User, thing: Experiment | Command | Job) -> None:
    """Only the owner and admins change an experiment, a command or a job."""
    if user.is_admin or thing.owner_id == user.pk:
        return
    name = f"{type(thing).__name__.lower()} {thing.pk}"
    raise Forbidden(f"{name} belongs to {thing.owner.username}; only its owner or an admin may change it.")
