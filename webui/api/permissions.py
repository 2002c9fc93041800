"""What a role may do. Viewers read; editors change what is theirs; admins change everything."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Any

from rest_framework.exceptions import NotAuthenticated
from rest_framework.permissions import SAFE_METHODS, BasePermission
from rest_framework.request import Request

from accounts import rights
from accounts.models import User
from accounts.rights import require_admin as require_admin
from accounts.rights import require_owner as require_owner
from jobs.models import Allocation
from webui.api.authentication import NOBODY
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
        if isinstance(who, Allocation):
            if method in getattr(view, "run_methods", ()):
                return True
            raise Forbidden("A run's token can only be used for that run's own reports.")
        if not isinstance(who, User):
            raise NotAuthenticated(NOBODY)
        writes = method not in SAFE_METHODS
        rights.require_scope(who, writes=writes, full=method in getattr(view, "full_scope_methods", ()))
        if method in getattr(view, "admin_methods", ()):
            require_admin(who)
        if writes and method not in getattr(view, "viewer_methods", ()):
            rights.require_editor(who)
        return True


def person(request: Request) -> User:
    """The logged-in user; a run's token is no person."""
    who: Any = request.user
    if not isinstance(who, User):
        raise Forbidden("A run's token cannot be used here.")
    return who


def actor(request: Request) -> str:
    """How event rows name whoever asks."""
    who: Any = request.user
    return f"run:{who.pk}" if isinstance(who, Allocation) else f"user:{who.username}"


def idempotency_key(request: Request, user: User) -> str | None:
    """The header's key, kept apart per user: nobody learns of another's job by guessing."""
    key = request.headers.get("Idempotency-Key")
    return hashlib.sha256(f"{user.pk}:{key}".encode()).hexdigest() if key else None
